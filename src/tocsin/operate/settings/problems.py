"""Collects all problems of settings, so that an operator sees them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tocsin.errors import ConfigError


class SeveralProblems(ConfigError):
    """Several settings are wrong: the text names the first, `problems` has all."""

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
        """Keep a ConfigError of the body and continue after it."""
        try:
            yield
        except ConfigError as error:
            self.found += problems_of(error)

    def raise_any(self) -> None:
        """Raises ConfigError if there are problems."""
        if len(self.found) > 1:
            raise SeveralProblems(self.found)
        if self.found:
            raise ConfigError(self.found[0])


def problems_of(error: ConfigError) -> tuple[str, ...]:
    """The problems of an error, one sentence each."""
    return error.problems if isinstance(error, SeveralProblems) else (str(error),)
