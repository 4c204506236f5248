"""The fake provider's own promises: what it records, whom a behaviour concerns, and lines that command it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from tests.unit.push.stage import PUSH, Stage, push_to, staged
from tocsin.push.fake import behaviours
from tocsin.push.fake.control_lines import HELP, BadLine, obey
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.push.provider import Accepted, RetryLater

SLOW_DOWN = behaviours.Respond(429, "TooManyRequests")


def test_a_script_is_for_one_device_before_it_is_for_all() -> None:
    script = behaviours.Script()
    script.add(SLOW_DOWN, None, times=2)
    script.add(behaviours.Hold(), None, times=None)
    script.add(behaviours.LOSE, b"01", times=1)
    assert [script.take(b"01"), script.take(b"01"), script.take(b"02")] == [
        behaviours.LOSE,
        SLOW_DOWN,
        SLOW_DOWN,
    ]
    assert [script.take(b"01"), script.take(b"02")] == [behaviours.Hold(), behaviours.Hold()]
    script.add(behaviours.LOSE, b"01", times=None)
    script.clear(b"02")
    assert [script.take(b"01"), script.take(b"01"), script.take(b"02")] == [
        behaviours.LOSE,
        behaviours.LOSE,
        behaviours.Hold(),
    ]
    script.clear(b"01")
    assert script.take(b"01") == behaviours.Hold()
    script.clear()
    assert script.take(b"01") == behaviours.ACCEPT


async def test_a_push_is_recorded_with_where_and_how_it_came(stage: Stage) -> None:
    stage.apns.behave(SLOW_DOWN, device_token=b"02")
    await stage.push_all(b"01", b"02")
    first = await stage.apns.next_push()
    assert (first.device_token, first.connection, first.stream_id, first.status) == (b"01", 1, 1, 200)
    assert first.payload == PUSH.payload
    assert first.header(b"apns-topic") == b"chat.simplex.app"
    refused = await stage.apns.next_request(b"02")
    assert (refused.stream_id, refused.status, refused.delivered) == (3, 429, False)
    with pytest.raises(TimeoutError):
        await stage.apns.next_push(timeout=0)  # each is handed out once


async def test_a_connection_that_is_just_arriving_when_it_stops_is_closed(tmp_path: Path) -> None:
    """Or it would be left open for ever, by nobody."""
    async with running_fake_apns(tmp_path) as apns:
        context = ssl.create_default_context(cafile=apns.ca_file)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", apns.port)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65_536))
        stopping = asyncio.create_task(apns.stop())
        await asyncio.sleep(0.05)  # the stop is waiting for the handshake now
        writer.write(outgoing.read())  # the client's last word of the handshake
        await stopping
        assert apns.connections == 1
        assert apns.sessions == []
        writer.close()


async def test_only_about_as_many_pushes_are_remembered_as_wanted(tmp_path: Path) -> None:
    async with running_fake_apns(tmp_path, keep=2) as apns, staged(apns) as stage:
        for number in range(4):
            await stage.push(b"0%d" % number)
        taken = await apns.next_push()
        assert [push.device_token for push in apns.pushes] == [b"02", b"03"]
        assert [push.device_token for push in apns.requests] == [b"02", b"03"]
        await stage.push(b"04")
        left = [await apns.next_push() for _ in range(2)]
    assert [push.device_token for push in (taken, *left)] == [b"02", b"03", b"04"]


async def test_nothing_notices_a_push(stage: Stage) -> None:
    await stage.push(b"01")
    await stage.apns.nothing(b"02", seconds=0)
    with pytest.raises(AssertionError, match="a push came"):
        await stage.apns.nothing(seconds=0)


async def test_what_is_recorded_shows_no_device_and_no_content(stage: Stage) -> None:
    await stage.push(b"abcd")
    shown = repr(await stage.apns.next_push())
    assert "abcd" not in shown
    assert "aps" not in shown.replace("apns", "")


async def test_some_pushes_are_released_and_others_held(stage: Stage) -> None:
    stage.apns.behave(behaviours.Hold(), times=2)
    one, two = stage.provider.send(push_to(b"01")), stage.provider.send(push_to(b"02"))
    await stage.apns.until(lambda: len(stage.apns.requests) == 2)
    assert stage.apns.release(device_token=b"02") == 1
    assert await two == Accepted()
    assert not one.done()
    assert stage.apns.release(SLOW_DOWN) == 1
    assert isinstance(await one, RetryLater)


LINES: list[tuple[str, behaviours.Behaviour]] = [
    ("accept", behaviours.ACCEPT),
    ("lose", behaviours.LOSE),
    ("answer 503", behaviours.Respond(503)),
    ("answer 503 Shutdown retry-after=5", behaviours.Respond(503, "Shutdown", retry_after="5")),
    (
        "answer 410 Unregistered timestamp=1700000000000",
        behaviours.Respond(410, "Unregistered", 1_700_000_000_000),
    ),
    ("delay 0.5", behaviours.Delay(0.5)),
    ("  hold ", behaviours.Hold()),
    ("reset", behaviours.ResetStream()),
    ("reset 7", behaviours.ResetStream(7)),
    ("goaway", behaviours.GoAway()),
    ("goaway last=5 code=11 close=yes", behaviours.GoAway(5, 11, True)),
    ("close", behaviours.CloseConnection()),
    ("close-mid-answer", behaviours.CloseMidAnswer()),
    ("close-mid-answer 500", behaviours.CloseMidAnswer(500)),
    ("raw 00ff", behaviours.SendRaw(b"\x00\xff")),
]


@pytest.mark.parametrize(("line", "behaviour"), LINES)
async def test_a_line_sets_a_behaviour(apns: FakeApns, line: str, behaviour: behaviours.Behaviour) -> None:
    apns.behave(behaviours.Hold(), times=None)
    await obey(apns, line)
    await obey(apns, f"{line} token=01 times=2")
    await obey(apns, f"{line} token=02 times=always")
    assert [apns.script.take(b"03"), apns.script.take(b"03")] == [behaviour, behaviours.Hold()]
    assert [apns.script.take(b"01") for _ in range(3)] == [behaviour, behaviour, behaviours.Hold()]
    assert [apns.script.take(b"02") for _ in range(3)] == [behaviour] * 3
    assert line.split()[0] in HELP


async def test_lines_act_at_once(stage: Stage) -> None:
    apns = stage.apns
    await obey(apns, "settings streams=7 window=1000")
    await obey(apns, "hold")
    push = stage.provider.send(PUSH)
    await apns.next_request()
    assert stage.provider.room == 6
    await obey(apns, "release")
    assert await push == Accepted()
    await obey(apns, "hold times=always")
    await obey(apns, "clear")
    assert await stage.push() == Accepted()
    await obey(apns, "refuse")
    await obey(apns, "close-all")
    await apns.until(lambda: not apns.sessions)
    assert await stage.push() == RetryLater("connection")
    await obey(apns, "listen")
    assert await stage.push() == Accepted()


@pytest.mark.parametrize(
    "line", ["", "dance", "answer", "answer x", "delay", "reset x", "raw 0", "hold times=x", "settings x=1"]
)
async def test_a_line_that_means_nothing_is_refused(apns: FakeApns, line: str) -> None:
    with pytest.raises(BadLine, match="unknown command"):
        await obey(apns, line)


async def test_a_client_that_breaks_the_rules_is_noticed(stage: Stage) -> None:
    await stage.push()
    [connection] = stage.provider._connections
    connection._tls.write(bytes(9 * 3))  # DATA of stream 0
    await stage.apns.until(lambda: stage.apns.broken)
    await stage.apns.until(lambda: not stage.apns.sessions)
    stage.apns.broken.clear()  # the fixture wants none at its end


async def test_pushes_of_two_entrances_can_be_told_apart(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    await stage.apns.open_entrance("side", port)
    await stage.push_all(b"01")
    assert (await stage.apns.next_push()).entrance == ""
    stage.apns.port = port
    async with staged(stage.apns) as at_the_side:
        assert await at_the_side.push(b"02") == Accepted()
    assert (await stage.apns.next_push()).entrance == "side"
