"""What follows an action of a worker (ntf.md 6.6, 6.7; Appendix B items 14, 16)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tocsin.agent.runtime.error_kinds import ErrorKind
from tocsin.agent.store.records import AgentSubscription, NextAction, SubscriptionPhase
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.lifecycles import WANTED
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus


class Success(Enum):
    """The good answers; a check has two."""

    DONE = "done"
    KEPT = "status: kept"
    LOST = "status: lost"


class Follow(Enum):
    SUBSCRIBE = "SNEW next"
    FIRST_CHECK = "SCHK after the first interval"
    NEXT_CHECK = "SCHK after the interval"
    DROP = "the row is deleted"
    RETRY = "again after a delay"
    READY = "ready; NPKT after the interval"
    ASK_SOON = "NPKT after a delay that grows"
    SEAL_AGAIN = "TCHK for another key, then NPKT with a packet"
    OLD_WAY = "NKEY next"
    RECREATE = "from scratch: NSKEY or NKEY"
    GIVE_UP = "no action; an event"
    GIVE_UP_AND_CHECK_TOKEN = "no action; an event; the token is checked"  # noqa: S105 - a sentence


FOLLOWS: Final[dict[NextAction, dict[Success | ErrorKind, Follow]]] = {
    NextAction.CREATE_KEYS: {
        Success.DONE: Follow.SUBSCRIBE,
        ErrorKind.TEMPORARY: Follow.RETRY,
        ErrorKind.AUTH: Follow.GIVE_UP,
        ErrorKind.PERMANENT: Follow.GIVE_UP,
    },
    NextAction.CREATE_OLD_KEYS: {
        Success.DONE: Follow.SUBSCRIBE,
        ErrorKind.TEMPORARY: Follow.RETRY,
        ErrorKind.AUTH: Follow.GIVE_UP,
        ErrorKind.PERMANENT: Follow.GIVE_UP,
    },
    NextAction.ASK_FATE: {
        ErrorKind.TEMPORARY: Follow.RETRY,
        ErrorKind.AUTH: Follow.RECREATE,
        ErrorKind.PERMANENT: Follow.GIVE_UP,
    },
    NextAction.SEND_PACKET: {
        ErrorKind.TEMPORARY: Follow.RETRY,
        ErrorKind.AUTH: Follow.RECREATE,
        ErrorKind.PERMANENT: Follow.GIVE_UP,
    },
    NextAction.DELETE_KEYS: {
        Success.DONE: Follow.DROP,
        ErrorKind.TEMPORARY: Follow.RETRY,
        # The queue is gone, and its notifier with it. The reference keeps the row (item 16).
        ErrorKind.AUTH: Follow.DROP,
        ErrorKind.PERMANENT: Follow.GIVE_UP,
    },
    NextAction.SUBSCRIBE: {
        Success.DONE: Follow.FIRST_CHECK,
        ErrorKind.TEMPORARY: Follow.RETRY,
        # The token is unknown or not active there, or the queue is registered with another key.
        ErrorKind.AUTH: Follow.GIVE_UP_AND_CHECK_TOKEN,
        ErrorKind.PERMANENT: Follow.GIVE_UP,
    },
    NextAction.CHECK: {
        Success.KEPT: Follow.NEXT_CHECK,
        # SNEW alone would return the same dead subscription (item 14): new credentials are needed.
        Success.LOST: Follow.RECREATE,
        ErrorKind.TEMPORARY: Follow.RETRY,
        ErrorKind.AUTH: Follow.RECREATE,
        ErrorKind.PERMANENT: Follow.GIVE_UP,
    },
}


def check_result(status: SubscriptionStatus) -> Success:
    return Success.KEPT if status in WANTED else Success.LOST


@dataclass(frozen=True, slots=True)
class CheckIntervals:
    """Seconds."""

    first: float = 86_400.0
    then: float = 3 * 86_400.0


def keys_created(row: AgentSubscription, notifier_id: bytes, now: float) -> AgentSubscription:
    return replace(
        row,
        phase=SubscriptionPhase.KEY,
        notifier_id=notifier_id,
        action=NextAction.SUBSCRIBE,
        due_at=now,
    )


def subscribed(
    row: AgentSubscription, subscription_id: bytes, token_id: bytes, notifier_id: bytes, due_at: float
) -> AgentSubscription:
    return replace(
        row,
        phase=SubscriptionPhase.CREATED,
        notifier_id=notifier_id,
        subscription_id=subscription_id,
        token_id=token_id,
        status=SubscriptionState.NEW,
        action=NextAction.CHECK,
        due_at=due_at,
    )


def check_again(row: AgentSubscription, status: SubscriptionStatus, due_at: float) -> AgentSubscription:
    return replace(row, phase=SubscriptionPhase.CREATED, status=status, due_at=due_at)


def recreated(row: AgentSubscription, ntf_router: RouterLocation, now: float) -> AgentSubscription:
    return replace(
        row,
        ntf_router=ntf_router,
        phase=SubscriptionPhase.NEW,
        action=NextAction.CREATE_KEYS,
        due_at=now,
        notifier_id=None,
        subscription_id=None,
        token_id=None,
        status=None,
    )


def given_up(row: AgentSubscription) -> AgentSubscription:
    """Ids and phase stay, for whoever looks for the reason."""
    return replace(row, action=None, due_at=None)
