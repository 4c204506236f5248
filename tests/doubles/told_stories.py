"""Stories for tests of what a store reads back: commands with generated arguments, many of them at an edge."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.doubles.failing_disk import without_syncs
from tests.strategies import messages
from tocsin.protocol.messages import Command, Message

Story: TypeAlias = list[tuple[int, Command]]
"""Commands, each with a number that decides whom it is about."""
MakeCommands: TypeAlias = Callable[[Sequence[type[Message]], Sequence[bytes]], st.SearchStrategy[Command]]

EDGES: Final = (b"", b"\0", b" ", b"\n", b"-", b",", b"a b", b"x" * 255)
NUMBERS: Final = st.integers(0, 255)


def examples(count: int) -> settings:
    """Generated once each, without looking for smaller ones: a failing story is printed as it is."""
    return settings(
        max_examples=count, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )


@st.composite
def edged(draw: st.DrawFn, kinds: Sequence[type[Message]], version: int, edges: Sequence[bytes]) -> Command:
    """A command of one of these kinds, whose byte fields are often not what they should be."""
    command: Any = draw(messages(draw(st.sampled_from(kinds)), version))
    if hasattr(command, "__dataclass_fields__"):
        for each in fields(command):
            if isinstance(getattr(command, each.name), bytes) and draw(st.booleans()):
                command = replace(command, **{each.name: draw(st.sampled_from(edges))})
    assert isinstance(command, Command)
    return command


def stories_about(
    kind: type[Message], make: MakeCommands, kinds: Sequence[type[Message]]
) -> st.SearchStrategy[Story]:
    """This command with each edge, between others."""
    of_kind = st.tuples(*(st.tuples(NUMBERS, make([kind], [edge])) for edge in EDGES))
    others = st.lists(st.tuples(NUMBERS, make(kinds, EDGES)), max_size=5)
    return st.tuples(others, of_kind, others).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for one story, on a disk whose syncs cost nothing."""
    folder = Path(tempfile.mkdtemp(prefix="tocsin-read-back-"))
    with pytest.MonkeyPatch.context() as patch:
        without_syncs(patch)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def in_scratch_folder(tell: Callable[[Path], Awaitable[None]]) -> None:
    async def run(folder: Path) -> None:
        await tell(folder)

    with scratch_folder() as folder:
        asyncio.run(run(folder))
