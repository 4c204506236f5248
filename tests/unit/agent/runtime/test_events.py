"""Events on their way to an app that reads them, or does not."""

from __future__ import annotations

import asyncio

from tocsin.agent.runtime.events import ConnectionReady, EventQueue, MessageArrived


def message(number: int) -> MessageArrived:
    return MessageArrived("a", b"%d" % number, number, b"body")


async def test_events_come_in_their_order() -> None:
    events = EventQueue()
    events.tell(ConnectionReady("a"))
    events.deliver(message(1))
    events.tell(ConnectionReady("b"))
    assert [await events.next() for _ in range(2)] == [ConnectionReady("a"), message(1)]
    assert events.waiting() == [ConnectionReady("b")]
    assert events.waiting() == []


async def test_reader_waits_for_an_event() -> None:
    events = EventQueue()
    reading = asyncio.create_task(events.next())
    await asyncio.sleep(0)
    assert not reading.done()
    events.tell(ConnectionReady("a"))
    assert await reading == ConnectionReady("a")


async def test_oldest_reports_are_dropped_but_no_message() -> None:
    events = EventQueue(limit=2)
    events.deliver(message(1))
    for name in "abcd":
        events.tell(ConnectionReady(name))
    assert events.dropped == 2
    assert events.waiting() == [message(1), ConnectionReady("c"), ConnectionReady("d")]
    for name in "ef":
        events.tell(ConnectionReady(name))
    assert events.dropped == 2
