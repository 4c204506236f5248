"""Client metrics that count, for tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ClientCounters:
    """Totals over all routers."""

    connections: int = 0
    failed_connections: int = 0
    disconnections: int = 0
    blocks_sent: int = 0
    commands_sent: int = 0
    blocks_received: int = 0
    answers: int = 0
    events: int = 0
    late_answers: int = 0
    timeouts: int = 0

    def connected(self, router: str, seconds: float) -> None:
        self.connections += 1

    def connect_failed(self, router: str, error: Exception) -> None:
        self.failed_connections += 1

    def disconnected(self, router: str, error: Exception | None) -> None:
        self.disconnections += 1

    def block_sent(self, router: str, commands: int) -> None:
        self.blocks_sent += 1
        self.commands_sent += commands

    def block_received(self, router: str, answers: int, events: int, late: int) -> None:
        self.blocks_received += 1
        self.answers += answers
        self.events += events
        self.late_answers += late

    def timed_out(self, router: str, commands: int) -> None:
        self.timeouts += commands
