"""Dispatch of commands, the same in both routers: a table from a command's class to its handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tocsin.protocol.messages import Command

A = TypeVar("A")


class CarriesCommand(Protocol):
    @property
    def command(self) -> Command: ...


class CommandTable(Generic[A]):
    """The handler of each command. A router's subclass has a typed `add` for each kind of request.

    `A` is what handlers return: a response, or an awaitable of one.
    """

    def __init__(self) -> None:
        self._handlers: dict[type[Command], Callable[[Any], A]] = {}

    def _add(self, command: type[Command], handler: Callable[[Any], A]) -> None:
        if command in self._handlers:
            raise ValueError(f"{command.__name__} has two handlers")
        self._handlers[command] = handler

    def execute(self, request: CarriesCommand) -> A:
        return self._handlers[type(request.command)](request)
