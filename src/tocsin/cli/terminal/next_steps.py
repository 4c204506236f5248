"""Next steps for errors that do not name one, because they also occur in a router's log."""

from __future__ import annotations

from typing import Final

from tocsin.errors import ConnectFailed, PeerIdentityMismatch, StoreUnavailable, TocsinError

# The first matching row counts: kind of error, words in its text.
_STEPS: Final[tuple[tuple[type[TocsinError], str, str], ...]] = (
    (StoreUnavailable, "database is unavailable", "check that the database runs, and its URL"),
    (PeerIdentityMismatch, "", "check the address: its fingerprint is not that of the router that answered"),
    (ConnectFailed, "cannot listen", "choose another port, or stop the program that uses it"),
    (ConnectFailed, "", "check that the router runs, and its address"),
)


def with_next_step(error: TocsinError) -> str:
    """Return the error's text, and the next step if the table has one."""
    text = str(error)
    step = next((step for kind, words, step in _STEPS if isinstance(error, kind) and words in text), "")
    return f"{text}; {step}" if step else text
