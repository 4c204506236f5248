"""Changes of a subscription's row: each function takes a row and returns the next one."""

from __future__ import annotations

from dataclasses import replace

from tocsin.agent.store.records import (
    AgentSubscription,
    AgentToken,
    NextAction,
    ReceiveQueue,
    SubscriptionPhase,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus


def started(queue: ReceiveQueue, token: AgentToken, now: float) -> AgentSubscription:
    """Make a new row, which also replaces an old one that starts over."""
    return AgentSubscription(
        queue.connection_id,
        queue.router,
        token.router,
        SubscriptionPhase.NEW,
        NextAction.CREATE_KEYS,
        now,
    )


def with_credentials(queue: ReceiveQueue, token: AgentToken, now: float) -> AgentSubscription:
    """Make the row of a queue that was created with a notifier (ntf.md 6.9) or with a packet."""
    assert queue.notifier is not None
    if queue.notifier.direct:
        assert token.token_id is not None
        return packet_sent(started(queue, token, now), queue.notifier.notifier_id, token.token_id, now)
    return keys_created(started(queue, token, now), queue.notifier.notifier_id, now)


def to_delete(row: AgentSubscription, queue: ReceiveQueue, now: float) -> AgentSubscription:
    return replace(row, smp_router=queue.router, action=NextAction.DELETE_KEYS, due_at=now)


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
    """Remove the action. Ids and phase stay, as evidence of the reason."""
    return replace(row, action=None, due_at=None)


# Packets of direct notifications


def packet_sent(
    row: AgentSubscription, notifier_id: bytes, token_id: bytes, due_at: float
) -> AgentSubscription:
    """Note that a packet was sent whose fate is not known yet."""
    return replace(
        row,
        phase=SubscriptionPhase.KEY,
        notifier_id=notifier_id,
        token_id=token_id,
        subscription_id=None,
        status=None,
        action=NextAction.ASK_FATE,
        due_at=due_at,
    )


def ask_again(row: AgentSubscription, due_at: float) -> AgentSubscription:
    return replace(row, action=NextAction.ASK_FATE, due_at=due_at)


def seal_again(row: AgentSubscription, now: float) -> AgentSubscription:
    return replace(row, action=NextAction.SEND_PACKET, due_at=now)


def associated(row: AgentSubscription, due_at: float) -> AgentSubscription:
    """Note that the NTF router has the queue, by the id of its notifier."""
    assert row.notifier_id is not None
    return replace(
        row,
        phase=SubscriptionPhase.CREATED,
        subscription_id=row.notifier_id,
        status=SubscriptionState.SERVICE,
        action=NextAction.ASK_FATE,
        due_at=due_at,
    )


def without_packets(row: AgentSubscription, now: float) -> AgentSubscription:
    """Start over with NKEY, because the NTF router, or the path to it, does not support packets."""
    return replace(
        row,
        phase=SubscriptionPhase.NEW,
        token_id=None,
        subscription_id=None,
        status=None,
        action=NextAction.CREATE_OLD_KEYS,
        due_at=now,
    )
