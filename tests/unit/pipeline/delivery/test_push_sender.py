"""Pushes sent from a Spark process: each has an outcome in time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.outcome_rows import NOT_SERVED, TOO_SLOW
from tocsin.pipeline.delivery.push_sender import PushSender, sender_of
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.pushes import CheckMessagesPush, push_json
from tocsin.push.fake.behaviours import Hold, Respond
from tocsin.push.fake.server import running_fake_apns
from tocsin.push.provider import Accepted, PushOutcome, PushRefused, PushRequest, Urgency
from tocsin.push.settings import ApnsEndpoint, ApnsSettings, WebPushSettings

TEST, PROD = PushProvider.APNS_TEST, PushProvider.APNS_PROD


def push(number: int) -> PushRequest:
    push_id = f"00000000-0000-8000-8000-{number:012d}"
    payload = push_json(CheckMessagesPush())
    return PushRequest(b"%064d" % number, payload, Urgency.BACKGROUND, push_id, 4_000_000_000)


async def test_each_push_has_its_own_outcome(tmp_path: Path) -> None:
    async with running_fake_apns(tmp_path) as apns:
        apns.behave(Hold(), device_token=b"%064d" % 2)
        apns.behave(Respond(400, "PayloadEmpty"), device_token=b"%064d" % 3)
        settings = ApnsSettings(endpoints={"apns_test": ApnsEndpoint(apns.host, apns.port, apns.ca_file)})
        sender = await asyncio.to_thread(PushSender, settings)

        def send(count: int, patience: float) -> list[PushOutcome | None]:
            pushes = [(TEST, push(number)) for number in range(count)]
            return sender.send(iter([*pushes, None, (PROD, push(99))]), patience)

        outcomes = await asyncio.to_thread(send, 5, 1.0)
        assert outcomes == [
            Accepted(),
            Accepted(),
            TOO_SLOW,
            PushRefused("PayloadEmpty"),
            Accepted(),
            None,
            NOT_SERVED,
        ]
        apns.release()
        again = await asyncio.to_thread(send, 300, 15.0)
        assert again == [Accepted()] * 300 + [None, NOT_SERVED]
        assert apns.connections <= 4  # they stay open


def test_a_process_has_one_sender_for_its_settings() -> None:
    settings = ApnsSettings(endpoints={})
    assert sender_of(settings) is sender_of(ApnsSettings(endpoints={}))
    assert sender_of(ApnsSettings(endpoints={}, topic="other")) is not sender_of(settings)


def test_a_process_of_the_job_makes_no_key_for_web_push(tmp_path: Path) -> None:
    """Push services would refuse what is signed with another key than the router's."""
    settings = WebPushSettings(enabled=True, key_file=tmp_path / "vapid.pem", subject="https://op.test")
    with pytest.raises(ConfigError, match=r"no webpush_key_file .*vapid\.pem: the router creates it"):
        PushSender(ApnsSettings(endpoints={}), None, settings)
    assert list(tmp_path.iterdir()) == []
