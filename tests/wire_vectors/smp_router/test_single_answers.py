"""One recorded request, and the recorded answer to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.wire_vectors.smp_router.recorded import (
    OURS,
    REPLAYED,
    SPAM,
    answered,
    entity,
    key_der,
    message,
    new_ids,
    notifier,
    part,
    queue,
    recorded_message,
)
from tests.wire_vectors.smp_router.stage import VECTORS, Stage, stage
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueStatus

Given = Callable[[Stage, str], None]


def nothing(_stage: Stage, _name: str) -> None:
    """The answer does not depend on what the router stores."""


def its_queue(**more: Any) -> Given:
    """The queue that the request names by its recipient id, with the request's key."""
    return lambda on, name: on.add_queue(queue(entity(name), keys=(key_der(name),), **more))


def other_key(on: Stage, name: str) -> None:
    on.add_queue(queue(entity(name), keys=(key_der("smp-err-syntax-space"),)))


def sent_to(**more: Any) -> Given:
    """The queue that the request names by its sender id."""
    return lambda on, name: on.add_queue(queue(sender_id=entity(name), **more))


def secured(**more: Any) -> Given:
    """As `sent_to`, secured with the request's key."""
    return lambda on, name: on.add_queue(queue(sender_id=entity(name), sender_key=key_der(name), **more))


def linked(mode: QueueMode) -> Given:
    def given(on: Stage, name: str) -> None:
        answer = part(name, "response", "command")
        data = LinkData(answer.octets("fixed"), answer.octets("user"))
        link = QueueLink(entity(name), data)
        on.add_queue(queue(sender_id=answer.octets("snd_id"), mode=mode, link=link))

    return given


def new_notifier(on: Stage, name: str) -> None:
    on.add_queue(queue(entity(name), keys=(key_der(name),)))
    answer = part(name, "response", "command")
    on.randomness.ids.append(answer.octets("notifier_id"))
    on.randomness.will_give_keys(answer.octets("srv_dh"))


def notified(on: Stage, name: str) -> None:
    on.add_queue(queue(notifier=notifier(name)))


def full(on: Stage, name: str) -> None:
    on.add_queue(queue(sender_id=entity(name)))
    quota = on.running.state.settings.message_quota
    for number in range(quota + 1):
        written = message(number.to_bytes(24, "big"), on.clock.time, b"")
        on.store.write_message(b"r" * 24, written, quota)


def fetched(on: Stage, name: str) -> None:
    secret = part(name, "decrypted").octets("secret")
    on.add_queue(queue(entity(name), keys=(key_der(name),), secret=secret))
    assert on.store.write_message(entity(name), recorded_message(name), 128)


ANSWERED: Final[dict[str, Given]] = {
    "smp-ping-v18": nothing,
    "smp-ping-v6": nothing,
    "smp-new-v18": new_ids,
    "smp-new-v17": new_ids,
    "smp-new-v16": new_ids,
    "smp-new-v12": new_ids,
    "smp-new-v9": new_ids,
    "smp-new-v6": new_ids,
    "smp-new-v18-ntf": new_ids,
    "smp-new-v18-ed448": new_ids,
    "smp-new-v18-x25519": new_ids,
    "smp-new-v18-link": new_ids,
    "smp-new-password": new_ids,
    "smp-new-nopassword": nothing,
    "smp-lkey": linked(QueueMode.MESSAGING),
    "smp-lget": linked(QueueMode.CONTACT),
    "smp-key": its_queue(),
    "smp-skey-x25519": sent_to(mode=QueueMode.MESSAGING),
    "smp-sub-ed448": its_queue(),
    "smp-sub-x25519": its_queue(),
    "smp-off": its_queue(),
    "smp-send-suspended": secured(status=QueueStatus.OFF),
    "smp-del": its_queue(),
    "smp-send-signed-unsecured": sent_to(),
    "smp-send-secured-unsigned": sent_to(sender_key=OURS.public.der),
    "smp-send-signed": secured(),
    "smp-get-msg": fetched,
    "smp-send-max-v18": sent_to(),
    "smp-send-large-v18": sent_to(),
    "smp-send-quota": full,
    "smp-send-v6": secured(),
    "smp-err-unknown": nothing,
    "smp-err-syntax-space": its_queue(),
    "smp-err-syntax-send": sent_to(),
    "smp-err-noauth-sub": other_key,
    "smp-err-hasauth-new": other_key,
    "smp-err-hasauth-ping": nothing,
    "smp-err-noentity-send": nothing,
    "smp-err-auth-key": other_key,
    "smp-err-auth-unknown": nothing,
    "smp-err-auth-nosessionid": other_key,
    "smp-err-block-authlen": other_key,
    "smp-corr-40-x25519": its_queue(),
    "smp-err-blocked-send-v17": sent_to(status=SPAM),
    "smp-nkey": new_notifier,
    "smp-ndel": its_queue(notifier=NotifierRecord(b"n" * 24, OURS.public.der, bytes(32))),
    "smp-nsub-v12": notified,
}
"""Recorded requests, and what the router is given before."""
REPLAYED.extend(ANSWERED)


@pytest.mark.parametrize("name", ANSWERED)
async def test_a_recorded_request_gets_the_recorded_answer(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "s3cret-pw" if name.endswith("password") else None
    async with stage(monkeypatch, create_password=password) as on:
        ANSWERED[name](on, name)
        await answered(on.actor(VECTORS[name]), name)
        assert not on.randomness.ids
        assert not on.randomness.dh_keys
