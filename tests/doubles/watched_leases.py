"""`tocsin` as a program that notes each moment at which it goes by a lease, with the lease's fence.

The file is named by TOCSIN_TEST_LEASES. All processes of one machine share the clock, so the notes of all of them show
whether two ever went by the same lease at the same time. If TOCSIN_TEST_CLOCKS names a file, the program itself has
other clocks (`jumping_clocks`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.doubles import jumping_clocks
from tocsin.cli.main import run
from tocsin.durable.postgres.leases import LeaseKeeper

VARIABLE: Final = "TOCSIN_TEST_LEASES"


class Noted(NamedTuple):
    at: float
    name: str
    fence: int
    process: int


def watch(path: Path) -> None:
    """Note from now on when a lease is found to be held. A note is written at once, so that a kill takes none."""
    holds = LeaseKeeper.holds
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    noted: dict[str, float] = {}

    def watched(keeper: LeaseKeeper, name: str) -> bool:
        now = jumping_clocks.monotonic()
        fence = keeper._held.get(name)
        held = holds(keeper, name)
        if held and now - noted.get(name, 0.0) > 0.005:
            noted[name] = now
            os.write(file, f"{now:.6f}\t{name}\t{fence}\t{os.getpid()}\n".encode())
        return held

    LeaseKeeper.holds = watched  # type: ignore[assignment, method-assign]


def read(path: Path) -> list[Noted]:
    """All notes, in the order of their time."""
    found = []
    for line in path.read_text().splitlines():
        at, name, fence, process = line.split("\t")
        found.append(Noted(float(at), name, int(fence), int(process)))
    return sorted(found)


def doubled(notes: Iterable[Noted]) -> list[tuple[Noted, Noted]]:
    """Pairs of notes that show two holders: an older fence after a newer one, or one fence in two processes."""
    latest: dict[str, Noted] = {}
    pairs = []
    for note in notes:
        before = latest.get(note.name)
        if before is not None and (
            note.fence < before.fence or (note.fence == before.fence and note.process != before.process)
        ):
            pairs.append((before, note))
        else:
            latest[note.name] = note
    return pairs


if __name__ == "__main__":
    if jumping_clocks.VARIABLE in os.environ:
        jumping_clocks.jump(Path(os.environ[jumping_clocks.VARIABLE]))
    watch(Path(os.environ[VARIABLE]))
    sys.exit(run(sys.argv[1:]))
