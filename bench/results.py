"""The output of every benchmark: a table for people and, last, one JSON line for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Result:
    """One measured figure. A smaller ratio is better; above the limit the target is missed."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    limit: float | None = None

    @property
    def verdict(self) -> str:
        if self.ratio is None or self.limit is None:
            return ""
        return "[green]ok[/green]" if self.ratio <= self.limit else "[red]over[/red]"


def show(title: str, results: Sequence[Result]) -> None:
    table = Table(title=title)
    for heading, justify in (("what", "left"), ("value", "right"), ("unit", "left"), ("ratio", "right")):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    table.add_column("limit", justify="right")
    table.add_column("")
    for result in results:
        table.add_row(
            result.name,
            f"{result.value:,.1f}" if result.value < 1000 else f"{result.value:,.0f}",
            result.unit,
            "" if result.ratio is None else f"{result.ratio:.2f}",
            "" if result.limit is None else f"{result.limit:.2f}",
            result.verdict,
        )
    Console().print(table)
    print(as_json(results))


def as_json(results: Sequence[Result]) -> str:
    """The last line of every benchmark."""
    return json.dumps([{k: v for k, v in asdict(each).items() if v is not None} for each in results])


def percentile(values: Sequence[float], percent: int) -> float:
    """Return 0 if there are no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0
