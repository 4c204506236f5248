"""Counts of commands by kind that no handler can count: refusals, and blocks with a command of a kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tocsin.protocol.error_codes import ErrorCode, RouterError
from tocsin.protocol.messages import Command
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.recipient_commands import (
    DeleteQueue,
    DisableNotifications,
    GetMessage,
    Subscribe,
)
from tocsin.protocol.smp.sender_commands import SendMessage
from tocsin.smp_router.statistics.counters import SmpCounters

_REFUSED: Final[tuple[tuple[type[Command], str], ...]] = (
    (SendMessage, "messages_refused"),
    (Subscribe, "subscriptions_refused"),
    (GetMessage, "gets_refused"),
    (SubscribeNotifications, "notifier_subscriptions_refused"),
)
_BLOCKS: Final[tuple[tuple[type[Command], str], ...]] = (
    (Subscribe, "subscription_blocks"),
    (DeleteQueue, "deletion_blocks"),
    (SubscribeNotifications, "notifier_subscription_blocks"),
    (DisableNotifications, "notifier_deletion_blocks"),
)


def count_refusal(counters: SmpCounters, command: Command, error: RouterError) -> None:
    """Count a command that was refused before it was executed."""
    if error is not ErrorCode.AUTH:
        return
    counters.auth_failures += 1
    for kind, name in _REFUSED:
        if isinstance(command, kind):
            _count(counters, name)


def count_block(counters: SmpCounters, commands: Iterable[Command]) -> None:
    """Count the kinds of commands in a block, each once."""
    kinds = {type(command) for command in commands}
    for kind, name in _BLOCKS:
        if any(issubclass(each, kind) for each in kinds):
            _count(counters, name)


def _count(counters: Any, name: str) -> None:
    setattr(counters, name, getattr(counters, name) + 1)
