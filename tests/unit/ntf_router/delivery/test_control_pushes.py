"""The control pushes that are sent, and those that are dropped."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from tests.doubles.push_provider import RecordingProvider
from tests.unit.ntf_router.store.samples import token
from tocsin.ntf_router.delivery.control_pushes import ControlPush, ControlPushes
from tocsin.ntf_router.delivery.outcomes import OutcomeRecorder
from tocsin.ntf_router.delivery.retry_schedule import RetrySchedule
from tocsin.ntf_router.session.requests import NoEvents
from tocsin.ntf_router.settings.settings import DeliverySettings
from tocsin.ntf_router.statistics.counters import NtfCounters
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.operate.clock import SystemClock
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import PushRequest, RetryLater, Urgency

TTL = 600.0


@dataclass
class Bench:
    """Control pushes of a provider that answers when it is told."""

    settings: DeliverySettings = field(default_factory=DeliverySettings)
    provider: RecordingProvider = field(default_factory=RecordingProvider)
    counters: NtfCounters = field(default_factory=NtfCounters)

    def __post_init__(self) -> None:
        self.provider.hold()
        self.retries = RetrySchedule(self.settings)
        self.pushes = ControlPushes(
            PushProvider.APNS_TEST,
            lambda push, answered: self.provider.submit(push.request, answered),
            self.settings,
            self.counters,
            OutcomeRecorder(NtfMemoryStore(), NoEvents(), SystemClock()),
            self.retries,
            lambda: None,
            lambda _token, _outcome: None,
        )

    def add(self, device: bytes, code: str, *, periodic: bool = False, ttl: float = TTL) -> None:
        request = PushRequest(device, code.encode(), Urgency.BACKGROUND, code, 0)
        give_up_at = asyncio.get_running_loop().time() + ttl
        self.pushes.add(ControlPush(token(device), request, periodic, give_up_at))

    def send(self) -> list[str]:
        self.pushes.send_some(100)
        sent = [push.push_id for push in self.provider.sent]
        self.provider.sent.clear()
        return sent


async def test_a_push_that_waited_too_long_is_not_sent() -> None:
    """Suspected in issue 17, and true: after an outage, pushes were sent whose time was over."""
    bench = Bench()
    bench.add(b"phone", "late", ttl=-1.0)
    bench.add(b"tablet", "in time")
    assert bench.send() == ["in time"]
    assert bench.counters.notifications_verification_failed == 1


async def test_the_newest_code_takes_the_turn_of_the_older() -> None:
    bench = Bench()
    bench.add(b"phone", "first")
    bench.add(b"tablet", "other")
    bench.add(b"phone", "second")
    assert bench.send() == ["second", "other"]
    assert bench.counters.notifications_verification_merged == 1


async def test_a_code_that_is_under_way_is_not_sent_twice() -> None:
    bench = Bench()
    bench.add(b"phone", "code")
    assert bench.send() == ["code"]
    bench.add(b"phone", "code")
    assert bench.send() == []
    bench.add(b"phone", "newer")
    assert bench.send() == ["newer"]


async def test_a_failed_push_gives_way_to_a_newer_code() -> None:
    bench = Bench()
    bench.add(b"phone", "first")
    bench.send()
    bench.add(b"phone", "second")
    bench.provider.release(RetryLater("connection"))
    assert len(bench.retries) == 0
    assert bench.send() == ["second"]


async def test_codes_come_at_a_rate_and_the_newest_rests_until_its_turn() -> None:
    bench = Bench(replace(DeliverySettings(), verification_burst=2, verification_interval=3600.0))
    for number in range(10):
        bench.add(b"phone", f"code {number}")
        bench.send()
        bench.provider.release()
        bench.provider.hold()
    assert bench.counters.notifications_verification_delivered == 2
    assert len(bench.retries) == 1
    bench.add(b"tablet", "other")
    assert bench.send() == ["other"]
    bench.retries.run_due(asyncio.get_running_loop().time() + 3600.0)
    assert bench.send() == ["code 9"]


async def test_all_kinds_of_waiting_count_towards_the_bound() -> None:
    bench = Bench(replace(DeliverySettings(), other_pushes=3))
    bench.add(b"sent", "sent")
    bench.add(b"resting", "resting")
    bench.send()
    bench.provider.release(RetryLater("connection", after=100.0))
    for number in range(5):
        bench.add(b"%d" % number, str(number))
    assert len(bench.retries) + len(bench.pushes) == 3
    assert bench.send() == ["4"]
    assert bench.counters.pushes_shed == 4


async def test_periodic_pushes_do_not_displace_codes() -> None:
    bench = Bench()
    bench.add(b"phone", "code")
    bench.add(b"phone", "reminder", periodic=True)
    assert bench.send() == ["code", "reminder"]
