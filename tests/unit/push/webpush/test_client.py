"""What a Web Push service does and what becomes of the push, over real TLS and HTTP/1.1."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.doubles.smp_harness import until
from tests.doubles.web_push_service import (
    HANG_UP,
    STALL,
    Answer,
    Behaviour,
    EndlessHeaders,
    Held,
    Raw,
    WebPushPhone,
    WebPushService,
    signed_claims,
)
from tests.unit.push.webpush.stage import (
    CHECK,
    KEY,
    MESSAGES,
    NOW,
    VERIFICATION,
    WebPushStage,
    request_to,
    web_push_settings,
)
from tocsin.errors import ConnectFailed
from tocsin.protocol.ntf.pushes import Push
from tocsin.protocol.ntf.statuses import InvalidReason
from tocsin.push.provider import (
    Accepted,
    PushOutcome,
    PushRefused,
    RetryLater,
    RetryScope,
    TokenInvalid,
    Urgency,
)
from tocsin.push.webpush.client import WebPushProvider

StageWith = Callable[..., AbstractAsyncContextManager[WebPushStage]]
TOKEN = RetryScope.TOKEN
LYING = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\nhello"

OUTCOMES: list[tuple[Behaviour, PushOutcome]] = [
    (Answer(), Accepted()),
    (Answer(200, body=b"x" * 5000, chunked=True), Accepted()),
    (Answer(202, {"Connection": "close"}), Accepted()),
    (Answer(410), TokenInvalid(InvalidReason.UNREGISTERED)),
    (Answer(404, body=b"gone"), TokenInvalid(InvalidReason.UNREGISTERED)),
    (Answer(413), PushRefused("413")),
    (Answer(401, {"WWW-Authenticate": "vapid"}), PushRefused("401")),
    (Answer(429, {"Retry-After": "7"}), RetryLater("429", TOKEN, 7.0)),
    (Answer(503, {"Retry-After": "30"}), RetryLater("503", TOKEN, 30.0)),
    (Answer(500), RetryLater("500", TOKEN)),
    (Answer(307, {"Location": "https://127.0.0.1/"}), PushRefused("redirect")),
    (HANG_UP, RetryLater("connection", TOKEN)),
    (Raw(b"HTTP/1.1 201 Cre"), RetryLater("connection", TOKEN)),
    (Raw(b"not HTTP at all\r\n\r\n", close=False), RetryLater("bad_answer", TOKEN)),
    (Raw(b"HTTP/1.1 101 Switching\r\n\r\n", close=False), RetryLater("bad_answer", TOKEN)),
    (EndlessHeaders(), RetryLater("bad_answer", TOKEN)),
    (Raw(LYING % 3, close=False), Accepted()),
    (Raw(LYING % 50), Accepted()),
]


@pytest.mark.parametrize(("behaviour", "outcome"), OUTCOMES, ids=lambda each: repr(each)[:60])
async def test_what_the_service_does_becomes_an_outcome(
    stage: WebPushStage, behaviour: Behaviour, outcome: PushOutcome
) -> None:
    stage.service.behaviours.append(behaviour)
    assert await stage.push() == outcome
    assert await stage.push() == Accepted()  # whatever it was, the next one is not concerned


@pytest.mark.parametrize("push", [MESSAGES, VERIFICATION, CHECK], ids=lambda push: type(push).__name__)
async def test_only_the_device_can_read_the_push(stage: WebPushStage, push: Push) -> None:
    phone = stage.phone()
    assert await stage.push(phone, push) == Accepted()
    assert await phone.next_push() == push


async def test_bodies_have_one_size_and_none_is_like_another(stage: WebPushStage) -> None:
    for push in (MESSAGES, MESSAGES, VERIFICATION, CHECK):
        await stage.push(push=push)
    bodies = [each.body for each in stage.service.received]
    assert len({len(body) for body in bodies}) == 1
    assert len({body[:86] for body in bodies}) == 4  # salt and key


async def test_the_service_learns_who_sends_and_how_urgent_it_is(stage: WebPushStage) -> None:
    phone = stage.phone()
    await stage.send(request_to(phone))
    await stage.send(request_to(phone, CHECK, Urgency.BACKGROUND))
    first, second = stage.service.received
    assert first.headers["host"] == f"push.test:{stage.service.port}"
    assert (first.headers["urgency"], second.headers["urgency"]) == ("high", "normal")
    assert first.headers["ttl"] == "60"
    assert first.headers["content-encoding"] == "aes128gcm"
    public, claims = signed_claims(first.headers["authorization"])
    assert public == KEY.public
    assert claims["aud"] == f"https://push.test:{stage.service.port}"
    assert claims["sub"] == "mailto:op@example.com"
    assert NOW < claims["exp"] <= NOW + 86_400
    assert second.headers["authorization"] == first.headers["authorization"]  # made once


async def test_the_authorization_is_made_anew_after_hours(service: WebPushService) -> None:
    times = [float(NOW), NOW + 3600.0, NOW + 7 * 3600.0]
    now = iter(times)
    provider = WebPushProvider(
        web_push_settings(ca_file=service.ca_file), KEY, service.find, lambda: next(now)
    )
    stage = WebPushStage(service, provider)
    for _ in times:
        assert await stage.push() == Accepted()
    first, second, third = (each.headers["authorization"] for each in service.received)
    assert first == second != third
    await provider.close()


async def test_pushes_one_after_another_share_a_connection(stage: WebPushStage) -> None:
    stage.service.behaviours.extend([Answer(200, body=b"{}" * 3000, chunked=True), Answer(413), Answer(204)])
    for _ in range(5):
        await stage.push()
    assert {each.connection for each in stage.service.received} == {1}


async def test_there_are_only_so_many_connections_to_a_host(stage_with: StageWith) -> None:
    async with stage_with(connections=3) as stage:
        sent = [stage.send(request_to(stage.phone(path=f"/{number}"))) for number in range(10)]
        assert set(await asyncio.gather(*sent)) == {Accepted()}
        assert stage.service.connections == 3


async def test_a_connection_that_the_service_closed_meanwhile_costs_no_push(stage: WebPushStage) -> None:
    """The service closes it when it sees the second request, as one whose time-out has just passed."""
    stage.service.behaviours.extend([Answer(), HANG_UP, Answer()])
    assert await stage.push() == Accepted()
    assert await stage.push() == Accepted()
    assert [each.connection for each in stage.service.received] == [1, 1, 2]


async def test_a_service_that_stalls_is_given_up_in_time(stage_with: StageWith) -> None:
    async with stage_with(timeout=0.8, connections=1) as stage:
        stage.service.behaviours.append(STALL)
        assert await stage.push() == RetryLater("timeout", TOKEN)
        assert await stage.push() == Accepted()


async def test_an_answer_whose_end_does_not_come_is_one(stage: WebPushStage) -> None:
    """A service that announces more than it sends has said what there is to say."""
    stage.service.behaviours.append(Raw(LYING % 50, close=False))
    assert await stage.push() == Accepted()
    assert await stage.push() == Accepted()


async def test_a_certificate_for_another_name_is_not_accepted(stage: WebPushStage) -> None:
    phone = WebPushPhone(stage.service, "evil.test")
    outcome = await stage.push(phone)
    assert outcome == RetryLater("connection", TOKEN, 2.0)
    assert stage.service.received == []


async def test_a_certificate_that_nobody_vouches_for_is_not_accepted(service: WebPushService) -> None:
    provider = WebPushProvider(web_push_settings(), KEY, service.find)
    assert await WebPushStage(service, provider).push() == RetryLater("connection", TOKEN, 2.0)
    assert service.received == []
    await provider.close()


async def test_a_host_without_an_allowed_address_is_not_connected_to(service: WebPushService) -> None:
    async def none(_host: str, _port: int) -> Any:
        raise ConnectFailed("only addresses that are not public")

    provider = WebPushProvider(web_push_settings(ca_file=service.ca_file), KEY, none)
    assert await WebPushStage(service, provider).push() == RetryLater("connection", TOKEN, 2.0)
    assert service.connections == 0
    await provider.close()


async def test_a_token_and_a_payload_that_are_none_are_told_apart(stage: WebPushStage) -> None:
    request = request_to(stage.phone())
    broken = request._replace(device_token=request.device_token[1:])
    assert await stage.send(broken) == TokenInvalid(InvalidReason.BAD)
    assert await stage.send(request._replace(contents=b'{"aps":{"alert":"x"}}')) == PushRefused("not_a_push")


async def test_a_close_waits_for_answers_and_gives_up_the_rest(service: WebPushService) -> None:
    settings = web_push_settings(ca_file=service.ca_file, connections=1)
    provider = WebPushProvider(settings, KEY, service.find)
    stage = WebPushStage(service, provider)
    gate = asyncio.Event()
    service.behaviours.append(Held(gate))
    first, second = stage.send(request_to(stage.phone())), stage.send(request_to(stage.phone()))
    await until(lambda: len(service.received) == 1)
    closing = asyncio.create_task(provider.close())
    await until(second.done)
    assert not first.done()
    gate.set()
    await closing
    assert await first == Accepted()
    assert await second == RetryLater("closed", TOKEN)
    assert await stage.push() == RetryLater("closed", TOKEN)
    assert (provider.in_flight, provider.hosts) == (0, 0)


async def test_nothing_of_a_device_token_is_logged(
    stage: WebPushStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    phone = WebPushPhone(stage.service, "evil.test", "/secret-path")
    for target in (phone, stage.phone(path="/secret-path")):
        await stage.push(target)
    assert "secret-path" not in caplog.text
    assert "evil.test" not in caplog.text
    assert "secret-path" not in repr(request_to(phone))


async def test_a_failure_that_nobody_thought_of_costs_one_attempt(
    service: WebPushService, caplog: pytest.LogCaptureFixture
) -> None:
    broken = [RuntimeError("with /secret-path")]

    def now() -> float:
        if broken:
            raise broken.pop()
        return NOW

    provider = WebPushProvider(web_push_settings(ca_file=service.ca_file), KEY, service.find, now)
    stage = WebPushStage(service, provider)
    assert await stage.push() == RetryLater("failed", TOKEN)
    assert await stage.push() == Accepted()
    assert "a push to a Web Push service failed (RuntimeError)" in caplog.text
    assert "secret-path" not in caplog.text
    await provider.close()
