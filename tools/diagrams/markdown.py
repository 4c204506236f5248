"""Parts of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def made_from(tables: str) -> str:
    return f"`python -m tools.diagrams` makes this page from the tables in `{tables}`, and a test keeps it current."


def picture(name: str, about: str) -> str:
    return f"![{about}](images/states/{name}.svg)"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]
