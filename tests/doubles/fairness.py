"""Attacks on the fairness of a router: full blocks of one command, while another client measures its PING."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from tests.doubles.smp_harness import Asked, SmpTestClient, authorized_with
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.protocol.ping import Ping

MOST_TIMES_QUIET: Final = 40
"""A PING during an attack takes at most so many times as long as a quiet one. Both routers' pages promise it."""
PINGS: Final = 7
"""During one attack; their median counts."""
ATTEMPTS: Final = 3


WRONG: Final = authorized_with(bytes(114))
"""As long as a signature by Ed448, the most expensive to check."""


def full_block(client: SmpTestClient, attack: Callable[[bytes], Asked], *, legal: bool) -> list[bytes]:
    """As many commands as fit one block. `attack` makes one for a correlation id.

    The illegal ones have a wrong signature, if they need one.
    """
    filler = client.session.filler()
    while True:
        corr_id = os.urandom(24)
        asked = attack(corr_id)
        key: AuthPrivateKey | None = asked.key if legal or asked.key is None else WRONG
        request = client.session.request(corr_id, asked.entity_id, asked.command, key)
        if not filler.fits(request):
            return filler.take()
        filler.add(request)


async def ping_seconds(client: SmpTestClient) -> float:
    """The CPU time of this process, in which router, victim and attacker run, until the PING is answered.

    Other than the time by the clock, it does not depend on what else the machine does.
    """
    started = time.process_time()
    await client.ask(Ping())
    return time.process_time() - started


async def quiet_ping(client: SmpTestClient) -> float:
    """The median while nothing else happens."""
    return statistics.median([await ping_seconds(client) for _ in range(40)])


async def ping_ratio(
    victim: SmpTestClient, quiet: float, attack: Callable[[], AbstractAsyncContextManager[None]]
) -> float:
    """How many times as long as a quiet PING the median PING takes while the attack runs: the best of some attempts."""
    ratios = []
    for _ in range(ATTEMPTS):
        async with attack():
            times = [await ping_seconds(victim) for _ in range(PINGS)]
        ratios.append(statistics.median(times) / quiet)
        if ratios[-1] <= MOST_TIMES_QUIET:
            break
    return min(ratios)


class StretchCounter:
    """Counts steps of work in each iteration of the event loop, and makes a clock of them: no real time passes."""

    STEP_SECONDS: Final = 0.000_25

    def __init__(self) -> None:
        self.steps = 0
        self.longest = 0
        self._before = 0
        self._handle: asyncio.Handle | None = None

    def clock(self) -> float:
        """In place of `time.perf_counter`: a step takes a quarter of a millisecond."""
        return self.steps * self.STEP_SECONDS

    async def send(self, client: SmpTestClient, blocks: Sequence[list[bytes]]) -> None:
        """Send the blocks and count until everything in them is answered."""
        self.start()
        for block in blocks:
            await client.connection.send(block)
        answers = 0
        while answers < sum(map(len, blocks)):
            answers += len(await client.block())
        self.stop()

    def start(self) -> None:
        self._before = self.steps
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _next(self) -> None:
        self.longest = max(self.longest, self.steps - self._before)
        self.start()
