"""Server-sent events for open pages."""

from __future__ import annotations

from tocsin.web.page_events import MOST_WAITING, PageEvents, as_event


async def test_a_subscriber_that_does_not_read_is_dropped() -> None:
    events = PageEvents(lambda: [("all", 0)])
    subscription = events.subscribe()
    assert await anext(subscription) == as_event("all", 0)
    for number in range(MOST_WAITING + 1):
        events.send("change", number)
    assert events.dropped == 1
    assert events.subscribers == 0
    assert [event async for event in subscription] == []
