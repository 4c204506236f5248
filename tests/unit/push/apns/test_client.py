"""Connections of the APNs client: how they are lost, replaced, filled and closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.unit.push.stage import (
    INITIAL_WINDOW_SIZE,
    LARGE_PAYLOAD,
    MAX_CONCURRENT_STREAMS,
    PUSH,
    Stage,
    push_to,
    staged,
)
from tocsin.push.fake.behaviours import CloseConnection, GoAway, Hold, ResetStream, Respond
from tocsin.push.fake.server import running_fake_apns
from tocsin.push.fake.session import SessionOptions
from tocsin.push.provider import Accepted, RetryLater, RetryScope

REFUSED_STREAM = 7
LOST = RetryLater("connection")

StageWith = Callable[..., AbstractAsyncContextManager[Stage]]


def tokens(count: int) -> list[bytes]:
    return [b"%08x" % number for number in range(count)]


async def test_pushes_share_one_connection_and_are_answered_in_any_order(stage: Stage) -> None:
    await stage.push()
    stage.apns.behave(Hold(), device_token=b"01")
    slow = stage.provider.send(push_to(b"01"))
    await stage.apns.next_request(b"01")
    assert await stage.push(b"02") == Accepted()
    stage.apns.release()
    assert await slow == Accepted()
    assert stage.apns.connections == 1


async def test_goaway_moves_what_was_not_begun_and_fails_nothing(stage: Stage) -> None:
    """Also the stream before, whose answer comes after GOAWAY, on the old connection."""
    stage.apns.behave(Hold(), device_token=b"01")
    stage.apns.behave(GoAway(), device_token=b"02")
    before, after = stage.provider.send(push_to(b"01")), stage.provider.send(push_to(b"02"))
    assert await after == Accepted()
    assert not before.done()
    stage.apns.release()
    assert await before == Accepted()
    assert [(push.device_token, push.connection) for push in stage.apns.pushes] == [(b"02", 2), (b"01", 1)]
    await stage.apns.until(lambda: len(stage.apns.sessions) == 1)  # the old one is closed


async def test_goaway_that_includes_a_push_does_not_send_it_twice(stage: Stage) -> None:
    stage.apns.behave(GoAway(last_stream_id=1))
    assert await stage.push_all(b"01", b"02") == [Accepted(), Accepted()]
    assert [push.connection for push in stage.apns.pushes] == [1, 2]
    assert len(stage.apns.requests) == 2


async def test_goaway_that_closes_at_once_fails_only_what_may_have_been_processed(stage: Stage) -> None:
    stage.apns.behave(Hold(), device_token=b"01")
    stage.apns.behave(GoAway(code=11, close=True), device_token=b"02")
    assert await stage.push_all(b"01", b"02") == [LOST, Accepted()]


async def test_a_refused_stream_goes_to_another_connection(stage_with: StageWith) -> None:
    async with stage_with(connections=1) as stage:
        stage.apns.behave(Hold(), device_token=b"01")
        stage.apns.behave(ResetStream(REFUSED_STREAM), device_token=b"02")
        held = stage.provider.send(push_to(b"01"))
        assert await stage.push(b"02") == Accepted()
        assert [(push.device_token, push.connection) for push in stage.apns.pushes] == [(b"02", 2)]
        stage.apns.release()
        assert await held == Accepted()


async def test_a_server_that_refuses_every_stream_is_tried_a_few_times_only(stage: Stage) -> None:
    stage.apns.behave(ResetStream(REFUSED_STREAM), times=None)
    assert await stage.push() == LOST
    assert len(stage.apns.requests) == 4
    stage.apns.script.clear()
    assert await stage.push() == Accepted()


async def test_a_lost_connection_fails_what_was_under_way_on_it_and_nothing_else(stage: Stage) -> None:
    stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 2})
    stage.apns.behave(Hold(), times=None)
    pushes = [stage.provider.send(push_to(token)) for token in tokens(4)]
    await stage.apns.until(lambda: len(stage.apns.requests) == 4)
    first, second = stage.apns.sessions
    first.abort()
    await stage.apns.until(lambda: len(stage.apns.sessions) == 1)
    second_streams = [push for push in stage.apns.requests if push.connection == second.number]
    stage.apns.script.clear()
    stage.apns.release()
    outcomes = await asyncio.gather(*pushes)
    assert outcomes.count(LOST) == 2
    assert outcomes.count(Accepted()) == len(second_streams) == 2
    assert await stage.push() == Accepted()


async def test_connections_may_be_lost_any_number_of_times(stage_with: StageWith) -> None:
    async with stage_with(connections=1) as stage:
        stage.apns.behave(CloseConnection(), times=10)
        assert [await stage.push() for _ in range(11)] == [LOST] * 10 + [Accepted()]


async def test_an_outage_ends_by_itself(stage: Stage) -> None:
    """Appendix B 8 and 26: refused connections killed the reference's worker for good."""
    assert await stage.push() == Accepted()
    stage.apns.refuse_connections()
    stage.apns.close_connections()
    await stage.apns.until(lambda: not stage.apns.sessions)
    for _ in range(20):
        await stage.provider.wait_for_room()
        assert await stage.push() == LOST
    await stage.apns.listen()
    assert await stage.push() == Accepted()


async def test_many_pushes_wait_for_the_first_connection_and_fail_with_it(stage: Stage) -> None:
    stage.apns.refuse_connections()
    assert await stage.push_all(*tokens(50)) == [LOST] * 50
    assert stage.provider.in_flight == 0


async def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    """Appendix B 9: the reference accepts it."""
    async with running_fake_apns(tmp_path, names=["push.example"]) as apns, staged(apns) as stage:
        assert await stage.push() == LOST
        assert apns.requests == []


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with running_fake_apns(tmp_path) as apns, running_fake_apns(tmp_path / "other") as other:
        apns.ca_file = other.ca_file
        async with staged(apns) as stage:
            assert await stage.push() == LOST
            assert apns.requests == []


async def test_http2_is_agreed_on(stage: Stage) -> None:
    await stage.push()
    assert [session.alpn for session in stage.apns.sessions] == ["h2"]


async def test_a_server_that_chooses_no_application_protocol_is_good_enough(tmp_path: Path) -> None:
    """The reference's own test server is one."""
    async with running_fake_apns(tmp_path, alpn=False) as apns, staged(apns) as stage:
        assert await stage.push() == Accepted()
        assert [session.alpn for session in apns.sessions] == [None]


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\x08\x06\0\0\0\0\0" + bytes(8)]
)
async def test_a_server_of_another_kind_is_no_connection(tmp_path: Path, greeting: bytes) -> None:
    options = SessionOptions(greeting=greeting)
    async with running_fake_apns(tmp_path, options=options) as apns, staged(apns) as stage:
        assert await stage.push() == LOST
        apns.options.greeting = None
        assert await stage.push() == Accepted()


async def test_a_server_that_does_not_greet_is_given_up(tmp_path: Path) -> None:
    options = SessionOptions(greeting=b"")
    async with (
        running_fake_apns(tmp_path, options=options) as apns,
        staged(apns, connect_timeout=0.05) as stage,
    ):
        assert await stage.push() == LOST
        await apns.until(lambda: not apns.sessions)


async def test_one_stream_until_the_server_allows_more(stage_with: StageWith) -> None:
    """As Apple does it until it has seen a valid provider token."""
    async with stage_with(connections=1) as stage:
        stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 1})
        stage.apns.behave(Hold(), times=None)
        pushes = [stage.provider.send(push_to(token)) for token in tokens(5)]
        await stage.apns.until(lambda: stage.apns.requests)
        assert stage.provider.room == 0
        waiting = asyncio.create_task(stage.provider.wait_for_room())
        stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 100})
        await waiting
        await stage.apns.until(lambda: len(stage.apns.requests) == 5)
        stage.apns.release()
        assert await asyncio.gather(*pushes) == [Accepted()] * 5


async def test_pushes_beyond_the_streams_of_a_connection_take_their_turn(stage_with: StageWith) -> None:
    async with stage_with(connections=1) as stage:
        stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 1})
        assert await stage.push_all(*tokens(20)) == [Accepted()] * 20
        assert stage.apns.sessions[0].most_streams == 1


async def test_room_that_an_answer_makes_is_told(stage_with: StageWith) -> None:
    async with stage_with(connections=1) as stage:
        stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 1})
        stage.apns.behave(Hold())
        push = stage.provider.send(PUSH)
        await stage.apns.next_request()
        waiting = [asyncio.create_task(stage.provider.wait_for_room()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        stage.apns.release()
        await asyncio.gather(push, *waiting)


async def test_room_that_a_lost_connection_leaves_is_told(stage_with: StageWith) -> None:
    async with stage_with(connections=1) as stage:
        stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 1})
        stage.apns.behave(CloseConnection())
        stage.apns.behave(Hold())
        push = stage.provider.send(PUSH)
        await stage.provider.wait_for_room()
        assert await push == LOST


async def test_a_second_connection_is_made_before_the_first_is_full(stage: Stage) -> None:
    stage.apns.behave(Hold(), times=None)
    await stage.provider.wait_for_room()
    pushes = [stage.provider.send(push_to(token)) for token in tokens(49)]
    await stage.apns.until(lambda: len(stage.apns.requests) == 49)
    assert stage.apns.connections == 1
    pushes += [stage.provider.send(push_to(token)) for token in tokens(2)]
    await stage.apns.until(lambda: stage.apns.connections == 2)
    await stage.apns.until(lambda: len(stage.apns.requests) == 51)
    stage.apns.release()
    assert await asyncio.gather(*pushes) == [Accepted()] * 51


async def test_hundreds_of_pushes_spread_over_several_connections(stage: Stage) -> None:
    stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 50})
    stage.apns.behave(Hold(), times=None)
    pushes = [stage.provider.send(push_to(token, LARGE_PAYLOAD)) for token in tokens(400)]
    await stage.apns.until(lambda: len(stage.apns.requests) == 200)
    assert [session.most_streams for session in stage.apns.sessions] == [50] * 4
    assert stage.provider.room == 0
    stage.apns.script.clear()
    stage.apns.release()
    assert await asyncio.gather(*pushes) == [Accepted()] * 400
    assert [session.most_streams for session in stage.apns.sessions] == [50] * 4


async def test_windows_of_streams_are_respected(stage: Stage) -> None:
    """A server whose streams take nothing at first, then a hundred bytes, then more."""
    stage.apns.change_settings({INITIAL_WINDOW_SIZE: 0})
    pushes = [stage.provider.send(push_to(token, LARGE_PAYLOAD)) for token in tokens(3)]
    await stage.apns.until(lambda: stage.apns.sessions and len(stage.apns.sessions[0].streams) == 3)
    assert stage.apns.requests == []
    stage.apns.change_settings({INITIAL_WINDOW_SIZE: 100})
    assert await asyncio.gather(*pushes) == [Accepted()] * 3
    assert {push.payload for push in stage.apns.pushes} == {LARGE_PAYLOAD}


async def test_the_window_of_the_connection_is_respected(tmp_path: Path) -> None:
    options = SessionOptions(return_windows=False)
    async with (
        running_fake_apns(tmp_path, options=options) as apns,
        staged(apns, connections=1) as stage,
    ):
        pushes = [stage.provider.send(push_to(token, LARGE_PAYLOAD)) for token in tokens(40)]
        await apns.until(lambda: len(apns.requests) == 65_535 // len(LARGE_PAYLOAD))
        await apns.until(lambda: apns.sessions[0].most_streams >= len(apns.requests) + 1)
        apns.sessions[0].open_windows()
        assert await asyncio.gather(*pushes) == [Accepted()] * 40
        assert {push.payload for push in apns.pushes} == {LARGE_PAYLOAD}
        assert apns.broken == []


async def test_a_push_without_an_answer_fails_alone(stage_with: StageWith) -> None:
    async with stage_with(request_timeout=0.1) as stage:
        stage.apns.behave(Hold(), device_token=b"01")
        late = stage.provider.send(push_to(b"01"))
        assert await late == RetryLater("timeout", RetryScope.TOKEN)
        assert await stage.push() == Accepted()
        assert stage.apns.connections == 1
        assert stage.apns.release() == 0  # the server was told that nobody waits


async def test_a_push_that_gets_no_stream_fails_in_time(stage_with: StageWith) -> None:
    async with stage_with(request_timeout=0.1, connections=1) as stage:
        stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 0})
        assert await stage.push() == RetryLater("timeout")
        stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 1})
        assert await stage.push() == Accepted()


async def test_room_that_is_left_by_pushes_that_were_not_sent_in_time_is_told(tmp_path: Path) -> None:
    options = SessionOptions(greeting=b"")
    async with (
        running_fake_apns(tmp_path, options=options) as apns,
        staged(apns, request_timeout=0.1) as stage,
    ):
        pushes = [stage.provider.send(push_to(token)) for token in tokens(200)]
        assert stage.provider.room == 0
        await stage.provider.wait_for_room()  # the attempt to connect goes on
        assert await asyncio.gather(*pushes) == [RetryLater("timeout")] * 200


async def test_after_503_another_connection_is_used_and_the_old_one_closed(stage: Stage) -> None:
    """Appendix B 21: connections that are given up are closed."""
    stage.apns.behave(Respond(503, "Shutdown"))
    await stage.push()
    assert await stage.push() == Accepted()
    assert stage.apns.pushes[0].connection == 2
    await stage.apns.until(lambda: [session.number for session in stage.apns.sessions] == [2])


async def test_closing_waits_for_answers_and_takes_nothing_new(stage: Stage) -> None:
    stage.apns.behave(Hold())
    push = stage.provider.send(PUSH)
    await stage.apns.next_request()
    closing = asyncio.create_task(stage.provider.close())
    await asyncio.sleep(0)
    assert await stage.push() == RetryLater("closed")
    stage.apns.release()
    assert await push == Accepted()
    await closing
    await stage.apns.until(lambda: not stage.apns.sessions)
    await stage.provider.wait_for_room()


async def test_whoever_waits_for_room_does_not_outlive_the_provider(stage_with: StageWith) -> None:
    async with stage_with(connections=1) as stage:
        stage.apns.change_settings({MAX_CONCURRENT_STREAMS: 1})
        stage.apns.behave(Hold())
        push = stage.provider.send(PUSH)
        await stage.apns.next_request()
        waiting = asyncio.create_task(stage.provider.wait_for_room())
        await asyncio.sleep(0)
        closing = asyncio.create_task(stage.provider.close())
        await asyncio.sleep(0)
        stage.apns.release()
        await asyncio.gather(push, closing, waiting)


async def test_closing_while_connecting_fails_what_waits(tmp_path: Path) -> None:
    options = SessionOptions(greeting=b"")
    async with running_fake_apns(tmp_path, options=options) as apns, staged(apns) as stage:
        pushes = [stage.provider.send(push_to(token)) for token in tokens(200)]
        waiting = asyncio.create_task(stage.provider.wait_for_room())
        await apns.until(lambda: apns.sessions)
        assert not waiting.done()
        await stage.provider.close()
        assert await asyncio.gather(*pushes) == [RetryLater("closed")] * 200
        await waiting


async def test_an_outcome_that_nobody_wants_any_more_disturbs_nothing(stage: Stage) -> None:
    stage.apns.behave(Hold())
    push = stage.provider.send(PUSH)
    waiting = stage.provider.send(PUSH)
    await stage.apns.next_request()
    push.cancel()
    waiting.cancel()
    stage.apns.release()
    assert await stage.push() == Accepted()


async def test_an_outage_is_logged_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.apns.refuse_connections()
    for _ in range(3):
        await stage.push()
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    await stage.apns.listen()
    await stage.push()
    stage.apns.refuse_connections()
    stage.apns.close_connections()
    await stage.push()
    await stage.push()
    assert [record.levelname for record in caplog.records].count("WARNING") == 2


async def test_no_device_is_in_the_log(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    token = b"0123456789abcdef"
    stage.apns.behave(CloseConnection())
    stage.apns.behave(GoAway(code=1))
    stage.apns.behave(Respond(400, "BadDeviceToken"))
    for _ in range(3):
        await stage.push(token)
    assert "a connection to APNs ended" in caplog.text
    assert token.decode() not in caplog.text
