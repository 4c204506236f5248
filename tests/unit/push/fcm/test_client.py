"""Pushes through Firebase: access tokens, misbehaving endpoints, and the end."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.doubles.smp_harness import until
from tests.unit.push.fcm.stage import (
    CHECK,
    REGISTRATION,
    VERIFICATION,
    FcmStage,
    account_of,
    fcm_settings,
    fcm_stage,
)
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.fake.behaviours import (
    ACCEPT,
    CloseConnection,
    CloseMidAnswer,
    Delay,
    GoAway,
    Hold,
    ResetStream,
    Respond,
    SendRaw,
)
from tocsin.push.fake.fcm import running_fake_fcm
from tocsin.push.fcm.client import NOT_A_PUSH, FcmProvider
from tocsin.push.provider import (
    Accepted,
    CredentialCounts,
    PushOutcome,
    PushRefused,
    PushRequest,
    RetryLater,
    RetryScope,
    TokenInvalid,
    Urgency,
)


def _name(value: object) -> str:
    return str(value)[:60]


async def test_pushes_arrive_as_data_messages(stage: FcmStage) -> None:
    for push in (VERIFICATION, CHECK):
        assert await stage.push(push) == Accepted()
    verification, check = await stage.message(), await stage.message()
    assert verification["token"].encode() == REGISTRATION
    assert set(verification["data"]) == {"nonce", "verification"}
    assert verification["android"] == {"priority": "HIGH", "ttl": "3600s", "direct_boot_ok": True}
    assert check["data"] == {"checkMessages": "true"}
    assert check["android"]["priority"] == "NORMAL"
    assert check["android"]["collapse_key"] == "checkMessages"


async def test_one_access_token_serves_many_pushes(stage: FcmStage) -> None:
    stage.fcm.behave_tokens(Delay(0.05))
    outcomes = await asyncio.gather(*(stage.push(token=REGISTRATION + b"%d" % n) for n in range(50)))
    assert set(outcomes) == {Accepted()}
    assert stage.fcm.token_requests == ["token"]


async def test_token_is_renewed_before_it_expires_while_pushes_go_on(stage: FcmStage) -> None:
    assert await stage.push() == Accepted()
    stage.clock.time += 3601 - 600
    stage.fcm.behave_tokens(Hold())
    assert await stage.push() == Accepted(), "the old token still works"
    await until(lambda: len(stage.fcm.token_requests) == 2)
    assert await stage.push() == Accepted()
    assert len(stage.fcm.token_requests) == 2, "one renewal at a time"


async def test_expired_token_is_never_used(stage: FcmStage) -> None:
    stage.fcm.token_life = 60
    assert await stage.push() == Accepted()
    stage.clock.time += 61
    assert await stage.push() == Accepted()
    assert stage.fcm.token_requests == ["token", "token"]
    assert stage.provider.credentials == CredentialCounts(renewed=2)
    assert [each.status for each in stage.fcm.requests] == [200, 200], "no push was refused"


async def test_refused_token_is_renewed_once_for_all_pushes(stage: FcmStage) -> None:
    assert await stage.push() == Accepted()
    stage.fcm.revoke_tokens()
    outcomes = await asyncio.gather(*(stage.push() for _ in range(20)))
    assert set(outcomes) == {Accepted()}
    assert stage.fcm.token_requests == ["token", "token"]


async def test_a_refusal_of_a_former_token_does_not_end_the_present_one(stage: FcmStage) -> None:
    assert await stage.push() == Accepted()
    late = REGISTRATION + b"late"
    stage.fcm.behave(Hold(), device_token=late)
    waiting = asyncio.create_task(stage.push(token=late))
    await until(lambda: len(stage.fcm.requests) == 2)
    stage.fcm.revoke_tokens()
    assert await stage.push() == Accepted()
    stage.fcm.release(Respond(401), device_token=late)
    assert await waiting == Accepted()
    assert stage.fcm.token_requests == ["token", "token"]


async def test_push_that_is_refused_twice_waits(stage: FcmStage) -> None:
    stage.fcm.behave(Respond(401), times=None)
    assert await stage.push() == RetryLater("UNAUTHENTICATED", RetryScope.PROVIDER, 60.0)
    assert [each.status for each in stage.fcm.requests] == [401, 401]


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        (Respond(400, "invalid_grant"), RetryLater("oauth_invalid_grant", RetryScope.PROVIDER, 60.0)),
        (Respond(400, "<script>"), RetryLater("oauth_4xx", RetryScope.PROVIDER, 60.0)),
        (Respond(429, retry_after="7"), RetryLater("oauth_4xx", RetryScope.PROVIDER, 7.0)),
        (Respond(503), RetryLater("oauth_5xx")),
        (Respond(302), RetryLater("oauth_3xx", RetryScope.PROVIDER, 60.0)),
        (SendRaw(b"garbage"), RetryLater("oauth_connection")),
        (CloseConnection(), RetryLater("oauth_connection")),
        (ResetStream(), RetryLater("oauth_connection")),
    ],
    ids=_name,
)
async def test_without_a_token_pushes_wait(stage: FcmStage, behaviour: Respond, outcome: PushOutcome) -> None:
    stage.fcm.behave_tokens(behaviour)
    assert set(await asyncio.gather(stage.push(), stage.push())) == {outcome}
    assert await stage.push() == outcome, "the endpoint is not asked again at once"
    assert stage.provider.room > 0
    assert stage.provider.credentials == CredentialCounts(failed=1)
    stage.clock.time += 61
    assert await stage.push() == Accepted()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"access_token":"","expires_in":3600}',
        b'{"access_token":"a b","expires_in":3600}',
        b'{"access_token":"a\\r\\nb","expires_in":3600}',
        b'{"access_token":"' + b"x" * 5000 + b'","expires_in":3600}',
        b'{"access_token":7,"expires_in":3600}',
        b'{"access_token":"a","expires_in":0}',
        b'{"access_token":"a","expires_in":true}',
        b'{"access_token":"a","expires_in":"3600"}',
        b'{"access_token":"a","expires_in":NaN}',
        b'{"access_token":"a"}',
    ],
    ids=_name,
)
async def test_what_is_no_token_is_not_used(stage: FcmStage, body: bytes) -> None:
    stage.fcm.behave_tokens(Respond(200, delivered=False, body=body))
    assert await stage.push() == RetryLater("oauth_answer", RetryScope.PROVIDER, 60.0)
    assert stage.fcm.requests == []


async def test_silent_token_endpoint_has_a_time_limit(tmp_path: Path) -> None:
    async with fcm_stage(tmp_path, timeout=0.3) as stage:
        stage.fcm.behave_tokens(Hold())
        assert await stage.push() == RetryLater("oauth_connection")


async def test_nobody_at_the_token_endpoint(tmp_path: Path) -> None:
    async with running_fake_fcm(tmp_path) as fcm:
        account, settings = account_of(fcm), fcm_settings(fcm)
    clock = 1_700_000_000.0
    provider = FcmProvider(settings, account, lambda: clock)
    push = PushRequest(REGISTRATION, b"{}", Urgency.ALERT, "1", 0)
    assert await provider.send(push) == RetryLater("oauth_connection")
    await provider.close()
    assert await provider.send(push) == RetryLater("closed")


async def test_other_certificates_are_refused(tmp_path: Path) -> None:
    """Neither a token nor a push goes to a server that nobody vouches for."""
    async with fcm_stage(tmp_path, ca_file=None) as stage:
        assert await stage.push() == RetryLater("oauth_connection")
        assert stage.fcm.token_requests == []


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        (Respond(404, "UNREGISTERED"), TokenInvalid(InvalidReason.UNREGISTERED)),
        (
            Respond(429, "QUOTA_EXCEEDED", retry_after="9"),
            RetryLater("QUOTA_EXCEEDED", RetryScope.PROVIDER, 9.0),
        ),
        (Respond(503, "UNAVAILABLE", retry_after="3"), RetryLater("UNAVAILABLE", RetryScope.PROVIDER, 3.0)),
        (Respond(200, body=b"x" * 1_000_000), Accepted()),
        (Respond(500, body=b"[" * 60_000), RetryLater("INTERNAL")),
        (Respond(307), PushRefused("redirect")),
        (CloseMidAnswer(200), Accepted()),
        (CloseConnection(), RetryLater("connection")),
        (ResetStream(), RetryLater("reset", RetryScope.TOKEN)),
        (SendRaw(b"\0" * 64), RetryLater("connection")),
        (ResetStream(7), Accepted()),
        (GoAway(), Accepted()),
    ],
    ids=_name,
)
async def test_misbehaving_send_endpoint(stage: FcmStage, behaviour: Respond, outcome: PushOutcome) -> None:
    stage.fcm.behave(behaviour)
    assert await stage.push() == outcome
    assert await stage.push() == Accepted()


async def test_push_without_an_answer_has_a_time_limit(tmp_path: Path) -> None:
    async with fcm_stage(tmp_path, timeout=0.5) as stage:
        stage.fcm.behave(Hold())
        assert await stage.push() == RetryLater("timeout", RetryScope.TOKEN)


async def test_wrong_registration_is_invalid(stage: FcmStage) -> None:
    assert await stage.push(token=b"!!") == TokenInvalid(InvalidReason.BAD)


async def test_payload_that_is_no_push_is_refused_here(stage: FcmStage) -> None:
    assert await stage.push() == Accepted()
    push = PushRequest(REGISTRATION, b'{"aps":{}}', Urgency.ALERT, "1", 0)
    assert await stage.provider.send(push) == PushRefused(NOT_A_PUSH)
    assert len(stage.fcm.requests) == 1


async def test_room_counts_what_waits_for_a_token(stage: FcmStage) -> None:
    stage.fcm.behave_tokens(Hold())
    before = stage.provider.room
    waiting = [stage.provider.send(stage.request()) for _ in range(before)]
    assert (stage.provider.room, stage.provider.in_flight) == (0, before)
    await until(lambda: bool(stage.fcm.token_requests))
    room = asyncio.create_task(stage.provider.wait_for_room())
    for session in list(stage.fcm.sessions):
        session.abort()
    await room
    assert {await each for each in waiting} == {RetryLater("oauth_connection")}


async def test_closing_answers_all(stage: FcmStage) -> None:
    stage.fcm.behave_tokens(Hold())
    pushes = [stage.provider.send(stage.request()) for _ in range(3)]
    await until(lambda: bool(stage.fcm.token_requests))
    await stage.provider.close()
    assert {await each for each in pushes} == {RetryLater("closed")}


async def test_no_secret_is_in_the_log(stage: FcmStage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert await stage.push() == Accepted()
    stage.fcm.revoke_tokens()
    stage.fcm.behave_tokens(Respond(400, "invalid_grant"))
    assert isinstance(await stage.push(), RetryLater)
    stage.fcm.behave(ACCEPT)
    assert "no access token for FCM: oauth_invalid_grant" in caplog.text
    for secret in (REGISTRATION.decode(), "ya29.", "BEGIN PRIVATE KEY"):
        assert secret not in caplog.text
