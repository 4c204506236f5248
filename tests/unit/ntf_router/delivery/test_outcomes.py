"""Outcomes of pushes that concern more than their notification."""

from __future__ import annotations

import msgspec

from tests.doubles.ntf_harness import HeldFineClock
from tests.unit.ntf_router.store.samples import ROUTER, filled, received, settled
from tocsin.ntf_router.delivery.outcomes import LATE, OutcomeRecorder
from tocsin.ntf_router.session.requests import NoEvents
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore


async def test_the_push_of_a_message_after_an_outage_begins_a_period() -> None:
    """The periodic push is due one period after the last message push, not after the message's arrival."""
    store, clock = NtfMemoryStore(), HeldFineClock()
    recorder = OutcomeRecorder(store, NoEvents(), clock)
    owner = await filled(store, "a", "a1")
    for late in (LATE, LATE + 1):
        before, came = clock.now(), clock.exactly()
        assert await store.set_cron(owner.token_id, 20, before)
        await store.add_notifications(ROUTER, [received("a1", late, came)])
        clock.time += late
        recorder.settle([msgspec.structs.replace(settled(owner, "a1", late), received_at=came)], lambda: None)
        await recorder.flush()
        begin = before if late == LATE else clock.now()
        assert [page async for page in store.cron_due(begin + 1200)] == []
        assert len([page async for page in store.cron_due(begin + 1201)]) == 1
