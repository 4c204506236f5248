"""Metrics hooks of a router client. Called once per block or connection, never once per command."""

from __future__ import annotations

from typing import Protocol


class ClientMetrics(Protocol):
    """Hooks for counters. They run on the hot path: they must not block, and their exceptions are not caught."""

    def connected(self, router: str, seconds: float) -> None:
        """A session is up, `seconds` after dialing began."""

    def connect_failed(self, router: str, error: Exception) -> None:
        """Dialing failed."""

    def disconnected(self, router: str, error: Exception | None) -> None:
        """A session ended; without an error, we closed it."""

    def block_sent(self, router: str, commands: int) -> None:
        """A block with this many commands was passed to the connection."""

    def block_received(self, router: str, answers: int, events: int, late: int) -> None:
        """A block arrived. Late answers belong to commands whose callers no longer wait."""

    def timed_out(self, router: str, commands: int) -> None:
        """This many commands got no answer in time."""


class NoMetrics:
    """Counts nothing."""

    def connected(self, router: str, seconds: float) -> None: ...
    def connect_failed(self, router: str, error: Exception) -> None: ...
    def disconnected(self, router: str, error: Exception | None) -> None: ...
    def block_sent(self, router: str, commands: int) -> None: ...
    def block_received(self, router: str, answers: int, events: int, late: int) -> None: ...
    def timed_out(self, router: str, commands: int) -> None: ...
