"""What the supervisor makes of a connection's notifications (ntf.md 6.4; Appendix B items 15, 16, 29)."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from itertools import product
from typing import Final

from tocsin.agent.store.records import (
    AgentSubscription,
    AgentToken,
    NextAction,
    ReceiveQueue,
    SubscriptionPhase,
)
from tocsin.agent.subscriptions.packet_fates import packet_sent
from tocsin.protocol.direct.priorities import MinimumPriority


class Credentials(Enum):
    """The queue's notifier, and the one that the row knows."""

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

CREATE_STEPS: Final[dict[tuple[Credentials, TokenOfRow, NextAction | None], CreateStep]] = {
    (credentials, token, action): (
        _CONTINUE[action]
        if credentials is Credentials.SAME and token is TokenOfRow.CURRENT
        # The reference continues rows of a former token: no push until their next check, days later (item 29).
        else CreateStep.RESET
    )
    for credentials, token, action in product(Credentials, TokenOfRow, (None, *NextAction))
}


def create_step(
    row: AgentSubscription | None, queue: ReceiveQueue, token: AgentToken, *, priorities: bool = True
) -> CreateStep:
    """Without `priorities` a notifier with a minimum of its own, from when there were, is replaced."""
    if row is None:
        return CreateStep.NEW
    if not priorities and queue.notifier is not None and queue.notifier.minimum is not MinimumPriority.ALL:
        return CreateStep.RESET
    return CREATE_STEPS[_credentials(row, queue), _token_of(row, token), row.action]


def _credentials(row: AgentSubscription, queue: ReceiveQueue) -> Credentials:
    known = None if queue.notifier is None else queue.notifier.notifier_id
    same_place = (row.smp_router.hosts, row.smp_router.port) == (queue.router.hosts, queue.router.port)
    return Credentials.SAME if same_place and known == row.notifier_id else Credentials.DIFFERENT


def _token_of(row: AgentSubscription, token: AgentToken) -> TokenOfRow:
    of_token = row.token_id is None or row.token_id == token.token_id
    return TokenOfRow.CURRENT if of_token and row.ntf_router == token.router else TokenOfRow.FORMER


def started(queue: ReceiveQueue, token: AgentToken, now: float) -> AgentSubscription:
    """A new row, and what a reset makes of an old one."""
    return AgentSubscription(
        queue.connection_id,
        queue.router,
        token.router,
        SubscriptionPhase.NEW,
        NextAction.CREATE_KEYS,
        now,
    )


def with_credentials(queue: ReceiveQueue, token: AgentToken, now: float) -> AgentSubscription:
    """The row of a queue that was created with a notifier (ntf.md 6.9), or with a packet."""
    assert queue.notifier is not None
    if queue.notifier.direct:
        assert token.token_id is not None
        return packet_sent(started(queue, token, now), queue.notifier.notifier_id, token.token_id, now)
    return replace(
        started(queue, token, now),
        phase=SubscriptionPhase.KEY,
        action=NextAction.SUBSCRIBE,
        notifier_id=queue.notifier.notifier_id,
    )


def to_delete(row: AgentSubscription, queue: ReceiveQueue, now: float) -> AgentSubscription:
    return replace(row, smp_router=queue.router, action=NextAction.DELETE_KEYS, due_at=now)
