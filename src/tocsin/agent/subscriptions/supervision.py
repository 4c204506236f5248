"""Decisions of the supervisor about a connection's notifications (ntf.md 6.4; Appendix B items 15, 16, 29)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby, product
from typing import Final

from tocsin.agent.store.records import AgentSubscription, AgentToken, NextAction, ReceiveQueue
from tocsin.protocol.direct.priorities import MinimumPriority


@dataclass(frozen=True, slots=True)
class CreateSubscriptions:
    """The command to give these connections notifications."""

    connection_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeleteSubscriptions:
    """The command to remove the notifications of these connections."""

    connection_ids: Sequence[str]


def joined(
    commands: Sequence[CreateSubscriptions | DeleteSubscriptions],
) -> list[CreateSubscriptions | DeleteSubscriptions]:
    """Merge neighbouring commands of the same kind, because fewer commands cost less."""
    result: list[CreateSubscriptions | DeleteSubscriptions] = []
    for kind, group in groupby(commands, type):
        names = dict.fromkeys(name for command in group for name in command.connection_ids)
        result.append(kind(tuple(names)))
    return result


class NotifierMatch(Enum):
    """How the queue's notifier compares with the one in the row."""

    SAME = "same, or neither has one"
    DIFFERENT = "different, or only one has one"


class TokenOfRow(Enum):
    CURRENT = "the token's"
    FORMER = "a former token's"


class CreateStep(Enum):
    NEW = "new row: NSKEY or NKEY"
    RESET = "reset the row: NSKEY or NKEY"
    KICK_SMP = "continue at the SMP router"
    KICK_NTF = "continue at the NTF router"

    @property
    def starts_over(self) -> bool:
        return self in (CreateStep.NEW, CreateStep.RESET)


_CONTINUE: Final[dict[NextAction | None, CreateStep]] = {
    None: CreateStep.RESET,  # given up before
    NextAction.DELETE_KEYS: CreateStep.RESET,
    NextAction.CREATE_KEYS: CreateStep.KICK_SMP,
    NextAction.CREATE_OLD_KEYS: CreateStep.KICK_SMP,
    NextAction.ASK_FATE: CreateStep.KICK_SMP,
    NextAction.SEND_PACKET: CreateStep.KICK_SMP,
    NextAction.SUBSCRIBE: CreateStep.KICK_NTF,
    NextAction.CHECK: CreateStep.KICK_NTF,
}

CREATE_STEPS: Final[dict[tuple[NotifierMatch, TokenOfRow, NextAction | None], CreateStep]] = {
    (match, token, action): (
        _CONTINUE[action]
        if match is NotifierMatch.SAME and token is TokenOfRow.CURRENT
        # The reference continues rows of a former token: no push until their next check, days later (item 29).
        else CreateStep.RESET
    )
    for match, token, action in product(NotifierMatch, TokenOfRow, (None, *NextAction))
}


def create_step(
    row: AgentSubscription | None, queue: ReceiveQueue, token: AgentToken, *, priorities: bool = True
) -> CreateStep:
    """Decide how to give a connection notifications.

    Without `priorities`, a notifier that still has a minimum priority of its own is replaced.
    """
    if row is None:
        return CreateStep.NEW
    if not priorities and queue.notifier is not None and queue.notifier.minimum is not MinimumPriority.ALL:
        return CreateStep.RESET
    return CREATE_STEPS[_match(row, queue), _token_of(row, token), row.action]


def _match(row: AgentSubscription, queue: ReceiveQueue) -> NotifierMatch:
    known = None if queue.notifier is None else queue.notifier.notifier_id
    same_place = (row.smp_router.hosts, row.smp_router.port) == (queue.router.hosts, queue.router.port)
    return NotifierMatch.SAME if same_place and known == row.notifier_id else NotifierMatch.DIFFERENT


def _token_of(row: AgentSubscription, token: AgentToken) -> TokenOfRow:
    of_token = row.token_id is None or row.token_id == token.token_id
    return TokenOfRow.CURRENT if of_token and row.ntf_router == token.router else TokenOfRow.FORMER
