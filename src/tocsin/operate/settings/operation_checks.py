"""Checks settings of any router that are valid alone and wrong together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class OperatedRouter(Protocol):
    """Settings that every router has."""

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
    """A sentence for each problem; keys are named `[SECTION] key`."""
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
