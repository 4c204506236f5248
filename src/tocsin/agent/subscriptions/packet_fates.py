"""What follows the fate of a packet (docs/direct-notifications.md, "The device")."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tocsin.agent.runtime.error_kinds import ErrorKind, worker_error_kind
from tocsin.agent.store.records import AgentSubscription, NextAction, SubscriptionPhase
from tocsin.agent.subscriptions.answers import Follow
from tocsin.clients import RouterRefused
from tocsin.errors import TocsinError
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.ntf.statuses import SubscriptionState

FATES: Final[dict[NextAction, dict[PacketFate, Follow]]] = {
    NextAction.CREATE_KEYS: {
        PacketFate.ACCEPTED: Follow.READY,
        PacketFate.PENDING: Follow.ASK_SOON,
        PacketFate.UNKNOWN_KEY: Follow.SEAL_AGAIN,
        PacketFate.BAD_TOKEN: Follow.GIVE_UP_AND_CHECK_TOKEN,
        # Of an id that was new: another new one would be refused for the same reason, whatever it is.
        PacketFate.BAD_QUEUE: Follow.GIVE_UP,
        PacketFate.UNSUPPORTED: Follow.OLD_WAY,
    },
    NextAction.ASK_FATE: {
        PacketFate.ACCEPTED: Follow.READY,
        PacketFate.PENDING: Follow.ASK_SOON,
        PacketFate.UNKNOWN_KEY: Follow.SEAL_AGAIN,
        PacketFate.BAD_TOKEN: Follow.GIVE_UP_AND_CHECK_TOKEN,
        PacketFate.BAD_QUEUE: Follow.RECREATE,
        PacketFate.UNSUPPORTED: Follow.OLD_WAY,
    },
    NextAction.SEND_PACKET: {
        PacketFate.ACCEPTED: Follow.READY,
        PacketFate.PENDING: Follow.ASK_SOON,
        PacketFate.UNKNOWN_KEY: Follow.SEAL_AGAIN,
        PacketFate.BAD_TOKEN: Follow.GIVE_UP_AND_CHECK_TOKEN,
        PacketFate.BAD_QUEUE: Follow.RECREATE,
        PacketFate.UNSUPPORTED: Follow.OLD_WAY,
    },
}


def packet_error_kind(error: TocsinError) -> ErrorKind:
    """As of other commands of workers, but for two refusals."""
    if isinstance(error, RouterRefused):
        if error.error is ErrorCode.QUOTA:  # too many packets wait there
            return ErrorKind.TEMPORARY
        if (
            error.error is CommandFault.PROHIBITED
        ):  # it has no such notifier, or forgot what became of the packet
            return ErrorKind.AUTH
    return worker_error_kind(error)


def packet_sent(
    row: AgentSubscription, notifier_id: bytes, token_id: bytes, due_at: float
) -> AgentSubscription:
    """Its fate is not known yet."""
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
    """The NTF router has the queue, by the id of its notifier."""
    assert row.notifier_id is not None
    return replace(
        row,
        phase=SubscriptionPhase.CREATED,
        subscription_id=row.notifier_id,
        status=SubscriptionState.SERVICE,
        action=NextAction.ASK_FATE,
        due_at=due_at,
    )


def in_the_old_way(row: AgentSubscription, now: float) -> AgentSubscription:
    """The NTF router, or the way to it, does not know packets."""
    return replace(
        row,
        phase=SubscriptionPhase.NEW,
        token_id=None,
        subscription_id=None,
        status=None,
        action=NextAction.CREATE_OLD_KEYS,
        due_at=now,
    )
