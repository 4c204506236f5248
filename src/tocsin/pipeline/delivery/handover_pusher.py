"""Runs on executors for `deliver`: reads hand-over segments, sends the pushes, and returns outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tocsin.crypto.boxes import BoxKey
from tocsin.errors import BadBox, DecodeError
from tocsin.ntf_router.delivery.handover import read_handover_key
from tocsin.ntf_router.delivery.handover_lines import (
    TOO_LARGE,
    Composed,
    HandedLine,
    Returned,
    compose,
    encode_returned,
    is_probe,
    opened,
    read_line,
    returned,
)
from tocsin.pipeline.delivery.push_sender import Push, sender_of
from tocsin.push.provider import PushOutcome, PushRefused, RetryLater, RetryScope
from tocsin.push.settings import ApnsSettings

UNREADABLE = RetryLater("unreadable", RetryScope.PROVIDER)


class FolderAnswers(NamedTuple):
    """Answers to the pushes of one folder."""

    folder: int
    lines: bytes
    """Outcomes as the router reads them."""
    counts: Mapping[str, int]
    """Pushes by outcome."""


@dataclass(frozen=True, slots=True)
class HandoverPusher:
    """Implements `SegmentPusher`. It travels through Spark, so it holds the folders of keys instead of keys."""

    folders: tuple[Path, ...]
    keys: tuple[Path, ...]
    """The key folder of each folder."""
    apns: ApnsSettings
    patience: float
    """Seconds to wait for the answers of a batch."""

    def __call__(self, segments: Sequence[tuple[int, str]], shard: int, shards: int) -> list[FolderAnswers]:
        lines = [
            (folder, line)
            for folder, name in segments
            for line in _lines(self.folders[folder] / name, shard, shards)
        ]
        batch = _Batch(newest_of_tokens(lines), {f: read_handover_key(self.keys[f]) for f, _ in lines})
        outcomes = sender_of(self.apns).send(batch.pushes(), self.patience)
        answers: dict[int, list[Returned]] = {}
        for folder, answer in batch.answers(outcomes):
            answers.setdefault(folder, []).append(answer)
        return [
            FolderAnswers(folder, encode_returned(each), _counts(each)) for folder, each in answers.items()
        ]


def _counts(answers: Sequence[Returned]) -> dict[str, int]:
    return dict(Counter(answer.outcome for answer in answers if not is_probe(answer.id)))


def _lines(path: Path, shard: int, shards: int) -> Iterator[HandedLine]:
    """The shard's lines. A missing segment was cleared by its router, which hands everything over again."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    for each in text.splitlines():
        try:
            line = read_line(each)
            mine = line.shard(shards) == shard
        except (DecodeError, ValueError):
            continue  # torn by a crash of the machine: its router restarts and hands over again
        if mine:
            yield line


def newest_of_tokens(lines: Sequence[tuple[int, HandedLine]]) -> list[tuple[int, HandedLine]]:
    """The last line of each token. It holds everything: a restarted router hands waiting notifications over again."""
    newest = {(folder, line.token): line for folder, line in lines}
    if len(newest) == len(lines):
        return list(lines)
    return [(folder, line) for folder, line in lines if newest[folder, line.token] is line]


class _Batch:
    def __init__(self, lines: Sequence[tuple[int, HandedLine]], keys: dict[int, BoxKey]) -> None:
        self._lines = lines
        self._keys = keys
        self._composed: list[Composed | None] = []

    def pushes(self) -> Iterator[Push | None]:
        """One per line, in order; None for lines that are not to be sent."""
        for folder, line in self._lines:
            if is_probe(line.id):
                self._composed.append(None)
                yield None
                continue
            try:
                composed = compose(opened(line, self._keys[folder]))
            except (BadBox, DecodeError):
                self._composed.append(None)
                yield None
                continue
            self._composed.append(composed)
            yield None if composed.request is None else (composed.provider, composed.request)

    def answers(self, outcomes: Sequence[PushOutcome | None]) -> Iterator[tuple[int, Returned]]:
        for (folder, line), composed, outcome in zip(self._lines, self._composed, outcomes, strict=True):
            if outcome is None:
                outcome = UNREADABLE if composed is None else PushRefused(TOO_LARGE)
            yield folder, returned(line.id, composed, outcome)
