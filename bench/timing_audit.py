"""`make audit-timing`: does the time of `ERR AUTH` reveal what is wrong with a command? A test of significance.

`make bench-auth` shows how large the differences are; this shows whether there are any. For each command, algorithm
of the stored key and algorithm that is used, commands are refused over one TLS connection for three reasons: a wrong
key for something that exists, an id that does not exist, and an id of another kind. The three take turns in a random
order, so that whatever else the machine does meets all of them alike. Each pair of reasons is compared by the rank sum
test of Mann and Whitney.

A row fails if a pair differs at the level `SIGNIFICANCE`, divided by the number of all comparisons (Bonferroni), *and*
the medians differ by more than `NEGLIGIBLE` of the larger one: with enough samples a test finds differences of
nanoseconds that no network lets anybody see.

Queues with several keys (RKEY) are measured too, with up to `FEWEST_CHECKS` of one algorithm: a wrong signature is
checked with each of them, and every refusal costs as many checks.

python -m bench.timing_audit              about two minutes; exit code 1 if a row fails
python -m bench.timing_audit --quick      a smoke run
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench import auth_timing
from bench.auth_timing import KEYS, PAIRS, Refusals
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.queue_modes import QueueMode, QueueRequest
from tocsin.protocol.smp.recipient_commands import CreateQueue, ReplaceRecipientKeys, Subscribe
from tocsin.protocol.smp.responses import QueueCreated
from tocsin.smp_router.session.verification import FEWEST_CHECKS
from tocsin.transport.client_sessions import ClientConnection, DialSettings, dial_smp

SIGNIFICANCE: Final = 0.01
NEGLIGIBLE: Final = 0.05
REASONS: Final = ("wrong key", "unknown id", "other kind")
SEVERAL_KEYS: Final = (
    (("Ed25519", "Ed448", "X25519"), "Ed25519"),
    (("Ed25519", "Ed448", "X25519"), "Ed448"),
    (("Ed25519", "Ed448", "X25519"), "X25519"),
    (("Ed25519",) * 2, "Ed448"),
    (("Ed25519",) * 2, "Ed25519"),
    (("Ed25519",) * 3, "Ed25519"),
    (("Ed25519",) * FEWEST_CHECKS, "Ed25519"),
    (("Ed448",) * FEWEST_CHECKS, "Ed448"),
    (("X25519",) * FEWEST_CHECKS, "X25519"),
)
"""Keys of the queue, and the key that is used."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The worst pair of reasons of one row."""

    name: str
    pair: str
    median: float
    """Seconds, of the slower reason."""
    difference: float
    """1 - faster / slower median."""
    p: float

    def fails(self, comparisons: int) -> bool:
        is_significant = self.p < SIGNIFICANCE / comparisons
        return is_significant and self.difference > NEGLIGIBLE


def rank_sum_p(first: Sequence[float], second: Sequence[float]) -> float:
    """The probability of a difference as large as this, or larger, if both have the same distribution.

    Two-sided, by the normal approximation, which is good from about 20 samples on. Equal values share their ranks.
    """
    values = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    rank_sum, ties, start = 0.0, 0, 0
    while start < len(values):
        end = start
        while end < len(values) and values[end][0] == values[start][0]:
            end += 1
        shared = (start + 1 + end) / 2
        rank_sum += shared * sum(owner == 0 for _, owner in values[start:end])
        ties += (end - start) ** 3 - (end - start)
        start = end
    n, m = len(first), len(second)
    mean, total = n * (n + m + 1) / 2, n + m
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    return math.erfc(abs(rank_sum - mean) / math.sqrt(2 * variance))


def compare(name: str, samples: Sequence[Sequence[float]]) -> list[Comparison]:
    """Compare each pair of reasons."""
    found = []
    for (reason, times), (other, other_times) in combinations(zip(REASONS, samples, strict=True), 2):
        medians = statistics.median(times), statistics.median(other_times)
        difference = 1 - min(medians) / max(medians)
        p = rank_sum_p(times, other_times)
        found.append(Comparison(name, f"{reason}, {other}", max(medians), difference, p))
    return found


async def take_samples(
    cases: Sequence[Sequence[bytes]], refuse: Callable[[bytes], Awaitable[None]], chance: random.Random
) -> list[list[float]]:
    """The times of all commands. Each round has one of each case, in a random order."""
    for transmission in cases[1][: len(cases[1]) // 4]:  # warm up
        await refuse(transmission)
    times: list[list[float]] = [[] for _ in cases]
    for turn in zip(*cases, strict=True):
        for index in chance.sample(range(len(cases)), len(cases)):
            began = time.perf_counter()
            await refuse(turn[index])
            times[index].append(time.perf_counter() - began)
    return times


class Audit:
    def __init__(self, count: int, seed: int) -> None:
        self.comparisons: list[Comparison] = []
        self._count = count
        self._chance = random.Random(seed)

    async def several_keys(self, address: RouterAddress) -> None:
        """SUB of queues with several keys."""
        for of_queue, used in SEVERAL_KEYS:
            connection = await dial_smp(address, DialSettings())
            try:
                refusals = await _queue_with_keys(connection, [KEYS[each]() for each in of_queue])
                name = f"SUB, queue {' + '.join(of_queue)}, used {used}"
                await self.measure(connection, refusals, name, used)
            finally:
                await connection.close(1.0)

    async def measure(self, connection: ClientConnection, refusals: Refusals, name: str, used: str) -> None:
        cases = auth_timing.refused_commands(connection, refusals, KEYS[used], self._count)

        async def refuse(transmission: bytes) -> None:
            await connection.send([transmission])
            [received] = await connection.receive()
            if received.response != Refused(ErrorCode.AUTH):
                raise RuntimeError(f"answered {received.response!r}")

        samples = await take_samples(cases, refuse, self._chance)
        self.comparisons += compare(name, samples)

    @property
    def failed(self) -> list[Comparison]:
        return [each for each in self.comparisons if each.fails(len(self.comparisons))]


async def _queue_with_keys(connection: ClientConnection, keys: list[AuthPrivateKey]) -> Refusals:
    dh_key = auth_timing.new_dh_key()
    create = CreateQueue(keys[0].public, dh_key, request=QueueRequest(QueueMode.CONTACT, None))
    ids = await auth_timing.ask(connection, QueueCreated, create, b"", keys[0])
    replace = ReplaceRecipientKeys(tuple(key.public for key in keys))
    await auth_timing.ask(connection, Done, replace, ids.recipient_id, keys[0])
    return Refusals("SUB", Subscribe(), ids.recipient_id, ids.sender_id)


async def audit(count: int, seed: int) -> Audit:
    audit = Audit(count, seed)
    async with auth_timing.smp_router() as (_running, address):
        for of_queue, used in track(PAIRS, "SMP router", transient=True):
            async with auth_timing.own_queue(address, of_queue) as (connection, all_refusals):
                for refusals in all_refusals:
                    name = f"{refusals.name}, queue {of_queue}, used {used}"
                    await audit.measure(connection, refusals, name, used)
        await audit.several_keys(address)
    for of_token, used in track(PAIRS, "NTF router", transient=True):
        async with auth_timing.own_token(of_token) as (connection, all_refusals):
            for refusals in all_refusals:
                name = f"{refusals.name}, token {of_token}, used {used}"
                await audit.measure(connection, refusals, name, used)
    return audit


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.timing_audit", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--count", type=int, default=400, help="samples of each case")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)), help="order of the cases")
    options = parser.parse_args()
    result = asyncio.run(audit(8 if options.quick else options.count, options.seed))
    show(result, options.seed)
    sys.exit(0 if options.quick or not result.failed else 1)


def show(result: Audit, seed: int) -> None:
    count = len(result.comparisons)
    level = SIGNIFICANCE / count
    title = f"ERR AUTH: {count} comparisons, level {SIGNIFICANCE} in all, {level:.1e} each, seed {seed}"
    table = Table("Command", "Reasons", "Median", "Difference", "p", "", title=title)
    for each in sorted(result.comparisons, key=lambda each: each.p)[:20]:
        verdict = ""
        if each.fails(count):
            verdict = "FAILS"
        elif each.p < level:
            verdict = "negligible"
        median, difference, p = f"{each.median * 1e6:.0f} µs", f"{each.difference:.3f}", f"{each.p:.1e}"
        table.add_row(each.name, each.pair, median, difference, p, verdict)
    console = Console()
    console.print(table)
    console.print(f"{len(result.failed)} rows fail; shown are those with the smallest p.")


if __name__ == "__main__":
    main()
