"""Events on their way to an app that reads them, or does not."""

from __future__ import annotations

import asyncio

from tocsin.agent.event_queue import EventQueue
from tocsin.agent.events import ConnectionReady, MessageArrived


def message(number: int) -> MessageArrived:
    return MessageArrived("a", b"%d" % number, number, b"body")


async def test_events_come_in_their_order() -> None:
    events = EventQueue()
    events.tell(ConnectionReady("a"))
    await events.deliver(message(1))
    events.tell(ConnectionReady("b"))
    read = events.read()
    assert [await anext(read) for _ in range(3)] == [ConnectionReady("a"), message(1), ConnectionReady("b")]


async def test_reader_waits_for_an_event() -> None:
    events = EventQueue()
    reading = asyncio.create_task(events.next())
    await asyncio.sleep(0)
    assert not reading.done()
    events.tell(ConnectionReady("a"))
    assert await reading == ConnectionReady("a")


async def test_oldest_reports_are_dropped_but_no_message() -> None:
    events = EventQueue(limit=2)
    await events.deliver(message(1))
    for name in "abcd":
        events.tell(ConnectionReady(name))
    assert events.dropped == 2
    assert [await events.next() for _ in range(3)] == [message(1), ConnectionReady("c"), ConnectionReady("d")]


async def test_messages_wait_for_room() -> None:
    events = EventQueue(limit=1)
    await events.deliver(message(1))
    third = asyncio.create_task(events.deliver(message(2)))
    await asyncio.sleep(0)
    assert not third.done()
    assert await events.next() == message(1)
    await third
    assert await events.next() == message(2)
