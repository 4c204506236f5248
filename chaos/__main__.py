"""`python -m chaos`: run the world under faults, and judge it."""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.table import Table

from chaos.faults import FAULTS
from chaos.verdict import Verdict, settle, verdict
from chaos.world import ChaosWorld, chaos_world
from tests.doubles.spark_desk import SparkDesk, spark_desk

SENDERS: Final = 4
PAUSE_SECONDS: Final = 0.02
"""Between two messages of one sender."""
PATIENCE: Final = 90.0
FAULT_SECONDS: Final = 150.0
"""A fault that takes longer, including the recovery that it waits for, has stopped the world."""


async def run_chaos(
    folder: Path,
    *,
    faults: int,
    phones: int,
    seed: str,
    only: list[str],
    say: Callable[[str], None],
    spark: AbstractContextManager[SparkDesk] | None = None,
) -> tuple[Verdict, Counter[str]]:
    """Run the world. The same seed gives the same faults in the same order, though not at the same instants.

    Without `spark`, its account is left out.
    """
    chance = random.Random(seed)
    kinds = _kinds(only or list(FAULTS), chance)
    struck: Counter[str] = Counter()
    say(f"starting {phones} phones, two SMP routers, an NTF router and PostgreSQL")
    async with chaos_world(folder, phones) as world:
        traffic = [
            asyncio.create_task(_traffic(world, random.Random(f"{seed} {number}")))
            for number in range(SENDERS)
        ]
        try:
            for number in range(1, faults + 1):
                name = next(kinds)
                own = random.Random(f"{seed} {number}")
                await asyncio.sleep(own.uniform(0.05, 0.5))
                began = time.monotonic()
                try:
                    async with asyncio.timeout(FAULT_SECONDS) as limit:
                        line = await FAULTS[name](world, own)
                except TimeoutError:
                    # A double has limits of its own, which a loaded machine may exceed.
                    seconds = FAULT_SECONDS if limit.expired() else time.monotonic() - began
                    return Verdict([f"fault {number} ({name}): no recovery in {seconds:.0f} s"], {}), struck
                struck[name] += 1
                say(f"{number:4d} {line} [{time.monotonic() - began:.1f} s]")
        finally:
            for task in traffic:
                task.cancel()
            await asyncio.gather(*traffic, return_exceptions=True)
        say("healing")
        await world.heal()
        unsettled = await settle(world, PATIENCE)
        say("accounting")
        return await verdict(world, unsettled, spark=spark), struck


def _kinds(names: list[str], chance: random.Random) -> Iterator[str]:
    """All kinds of faults in any order, then all of them in another order, and so on."""
    while True:
        yield from chance.sample(names, len(names))


async def _traffic(world: ChaosWorld, chance: random.Random) -> None:
    while True:
        phone = chance.choice(world.phones)
        chat = chance.choice(phone.chats)
        await chat.sender.send(chat)
        await asyncio.sleep(PAUSE_SECONDS)


def main(arguments: list[str] | None = None) -> int:
    """0: everything is as it should be. 1: it is not. 130: interrupted."""
    options = _parser().parse_args(arguments)
    console = Console(file=sys.stdout)
    console.print(f"seed {options.seed}", highlight=False)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False)

    with TemporaryDirectory(prefix="tocsin-chaos-") as folder, suppress(KeyboardInterrupt):
        result, struck = asyncio.run(
            run_chaos(
                options.folder or Path(folder),
                faults=options.faults,
                phones=options.agents,
                seed=options.seed,
                only=options.only or [],
                say=say,
                spark=None if options.without_spark else spark_desk(),
            )
        )
        _show(console, result, struck)
        return 1 if result.problems else 0
    return 130


def _show(console: Console, result: Verdict, struck: Counter[str]) -> None:
    table = Table("fault", "times")
    for name, times in sorted(struck.items()):
        table.add_row(name.replace("_", " "), str(times))
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in result.facts.items()), highlight=False)
    for problem in result.problems:
        console.print(f"[bold red]problem[/] {problem}", highlight=False)
    if not result.problems:
        console.print(
            "[green]every notification has an outcome, and everything is in the state of the model[/]"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="number of faults (200)")
    parser.add_argument("--agents", type=int, default=300, help="number of phones (300)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="decides which faults strike; printed")
    parser.add_argument(
        "--only", action="append", choices=list(FAULTS), help="only this kind of fault; repeatable"
    )
    parser.add_argument("--without-spark", action="store_true", help="leave out Spark's account")
    parser.add_argument("--folder", type=Path, help="keep all files in this folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
