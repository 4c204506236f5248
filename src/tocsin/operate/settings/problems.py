"""Finds settings that contradict each other, and collects all problems, so that an operator sees them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

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


class OperatedRouter(Protocol):
    """The settings that every router has."""

    @property
    def lowest_version(self) -> int: ...
    @property
    def highest_version(self) -> int: ...
    @property
    def ports(self) -> tuple[int, ...]: ...
    @property
    def control_port(self) -> int | None: ...
    @property
    def prometheus_port(self) -> int | None: ...
    @property
    def control_port_admin_password(self) -> str | None: ...
    @property
    def control_port_user_password(self) -> str | None: ...


def operation_problems(settings: OperatedRouter) -> Iterator[str]:
    """Yield a sentence for each problem of settings that are valid alone and wrong together."""
    if settings.lowest_version > settings.highest_version:
        yield (
            f"[TOCSIN] lowest_version {settings.lowest_version} is above "
            f"highest_version {settings.highest_version}"
        )
    ports = [port for port in (*settings.ports, settings.control_port, settings.prometheus_port) if port]
    if len(set(ports)) != len(ports):
        yield "port, control_port and prometheus_port must be different ports"
    passwords = settings.control_port_admin_password, settings.control_port_user_password
    if passwords[0] is not None and passwords[0] == passwords[1]:
        yield "control_port_admin_password and control_port_user_password must differ"
