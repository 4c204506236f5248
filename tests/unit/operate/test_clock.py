"""The system's clock."""

from __future__ import annotations

import time

from tocsin.operate.clock import SystemClock


async def test_clock_tells_seconds_since_1970_and_waits() -> None:
    clock = SystemClock()
    before = time.time()
    await clock.wait(0)
    assert before <= clock.exactly() <= time.time()
    assert int(before) <= clock.now() <= time.time()
