"""What an SMP router can make us do by ENDS."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.doubles.smp_harness import ed25519
from tocsin.observability.ntf_counters import NtfCounters
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.sessions import ServiceSession
from tocsin.routers.ntf.queue_subscriptions import QueueSubscriptions
from tocsin.routers.ntf.subscriber_parts import SmpRouterInUse

SERVICE = ServiceSession(b"s" * 24, bytes(32), ed25519())


def router() -> SmpRouterInUse:
    parts: Any = SimpleNamespace(counters=NtfCounters(), store=None)
    return SmpRouterInUse(RouterLocation(("smp.example.com",), "", bytes(32)), parts)


async def test_however_often_a_service_ends_it_is_taken_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[float] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, _call: later.append(delay))
    one = router()
    one.state.service_count = 7
    queues = QueueSubscriptions(one)
    for _ in range(1000):
        queues.service_ended(SERVICE, SERVICE.service_id)
    assert (one.state.service_count, one.state.pending_service) == (0, 7)
    assert one.parts.counters.services_taken_over == 1000
    assert len(later) == 1


async def test_the_end_of_a_service_that_is_not_ours_changes_nothing() -> None:
    one = router()
    one.state.service_count = 7
    queues = QueueSubscriptions(one)
    queues.service_ended(SERVICE, b"other" * 4)
    queues.service_ended(None, SERVICE.service_id)
    assert (one.state.service_count, one.parts.counters.services_taken_over) == (7, 0)
