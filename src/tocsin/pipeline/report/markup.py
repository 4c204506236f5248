"""HTML and SVG as text that escapes everything not made here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

Attribute = str | int | float | None
NO_WORDS: Final = frozenset[int]()


class Markup(str):
    """Text that is HTML already. Any other text is escaped when it is used."""

    __slots__ = ()


def tag(name: str, *content: str, **attributes: Attribute) -> Markup:
    """`tag("p", "a < b", class_="x")`. Underscores in names become hyphens; None omits the attribute."""
    texts = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    return Markup(f"<{name}{''.join(texts)}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def prose(sentences: str) -> Markup:
    """Turns text between backticks into code."""
    parts = sentences.split("`")
    return joined(tag("code", part) if number % 2 else part for number, part in enumerate(parts))


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, words: frozenset[int] = NO_WORDS
) -> Markup:
    """The first column names the row; the others are figures, or text for columns in `words`. Wide tables scroll."""
    kinds = ["words" if number in words else None for number in range(len(header))]
    head = tag(
        "tr", *(tag("th", name, scope="col", class_=kind) for name, kind in zip(header, kinds, strict=True))
    )
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
        )
        for row in rows
    ]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def details(summary: str, *content: str) -> Markup:
    return tag("details", tag("summary", summary), *content)


def section(name: str, title: str, meaning: str, *content: str, bad: str = "") -> Markup:
    """A section of the page: what it shows, the figures, and what to do if they are bad."""
    advice = [tag("p", tag("strong", "If this looks bad: "), prose(bad), class_="advice")] if bad else []
    heading = tag("h2", title, id=f"{name}-title")
    lead = tag("p", prose(meaning), class_="meaning")
    return tag("section", heading, lead, *content, *advice, id=name, aria_labelledby=f"{name}-title")


def _text(value: str | int | float) -> str:
    """Rounds coordinates to a hundredth to keep the page small."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
