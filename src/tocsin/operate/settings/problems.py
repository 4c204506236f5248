"""Everything that is wrong with settings, not only the first of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tocsin.errors import ConfigError


class SeveralProblems(ConfigError):
    """More than one setting is wrong; the text is about the first, `problems` has them all."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        more = len(self.problems) - 1
        super().__init__(f"{self.problems[0]} (and {more} more: `config check` lists all)")


class Problems:
    """Collects ConfigErrors, to be raised together."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def noting(self) -> Iterator[None]:
        """A ConfigError of the body is kept, and its rest is left out."""
        try:
            yield
        except ConfigError as error:
            self.found += problems_of(error)

    def raise_any(self) -> None:
        """Raises ConfigError if something was found."""
        if len(self.found) > 1:
            raise SeveralProblems(self.found)
        if self.found:
            raise ConfigError(self.found[0])


def problems_of(error: ConfigError) -> tuple[str, ...]:
    """Each in one sentence."""
    return error.problems if isinstance(error, SeveralProblems) else (str(error),)
