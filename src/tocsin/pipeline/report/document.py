"""One self-contained HTML file, for the report and for the simulation."""

from __future__ import annotations

from typing import Final

from tocsin.pipeline.report.markup import Markup, joined, tag
from tocsin.pipeline.report.style import STYLE

# Nothing may be loaded or run, neither through a mistake of ours nor through a hostile host name.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(title: str, *content: Markup) -> str:
    """A complete HTML file."""
    head = joined(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width,initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Markup('<meta name="referrer" content="no-referrer">'),
            tag("title", title),
            tag("style", Markup(STYLE)),
        ]
    )
    skip = tag("a", "Skip to the figures", href="#main", class_="skip")
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', skip, *content), lang='en')}\n"


def tile(name: str, value: str, note: str, *, alarm: bool = False) -> Markup:
    figures = (tag("dt", name), tag("dd", value), tag("dd", note, class_="note"))
    return tag("div", *figures, class_="tile alarm" if alarm else "tile")
