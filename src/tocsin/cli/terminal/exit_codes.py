"""The exit codes of every `tocsin` command; docs/configuration.md has the same table."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Commands that run until a signal stops them (SIGTERM, SIGINT) end with OK."""

    OK = 0
    WRONG = 1
    USAGE = 2
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "done, and nothing is wrong",
    ExitCode.WRONG: "something is wrong, and the output says what: a setting, a file, a router, a count, a finding",
    ExitCode.USAGE: "wrong usage: an unknown command or option, or one is missing; nothing was done",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C before it was done",
}
