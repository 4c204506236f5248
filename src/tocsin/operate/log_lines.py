"""Log lines of long-running programs: one line for each message, whatever strangers put into it.

Messages may contain text that came over the network, such as the reason that another server gave. Control characters in
it could forge lines or change the terminal, so they are written as escapes.
"""

from __future__ import annotations

import logging

TIMED = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SHORT = "%(levelname)s: %(message)s"


class EscapingFormatter(logging.Formatter):
    """Writes characters that do not print as `\\xNN` or `\\uNNNN`. Tracebacks keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        return _escape_lines(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        return _escape_lines(super().formatStack(stack_info))


def escape(text: str) -> str:
    """Return the text with escapes in place of what does not print, line ends included."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _escape_lines(text: str) -> str:
    return "\n".join(escape(line) for line in text.split("\n"))


def log_to_stderr(level: int | str, line: str = TIMED) -> None:
    """Send the log of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter(line))
    logging.basicConfig(level=level, handlers=[handler])
