"""Decisions after an answer: functions that take a row and an answer and return what happens next.

`FOLLOWS` covers answers and errors of the routers (ntf.md 6.6, 6.7; Appendix B items 14, 16), `FATES` the fates of
packets (docs/direct-notifications.md, "The device"). Nothing here asks a router or writes to the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tocsin.agent.runtime.error_kinds import ErrorKind, packet_error_kind, worker_error_kind
from tocsin.agent.runtime.settings import CheckIntervals
from tocsin.agent.store.interface import Completion
from tocsin.agent.store.records import (
    AgentSubscription,
    AgentToken,
    NextAction,
    QueueNotifier,
    ReceiveQueue,
)
from tocsin.agent.subscriptions.row_changes import (
    ask_again,
    associated,
    check_again,
    given_up,
    keys_created,
    packet_sent,
    recreated,
    seal_again,
    started,
    subscribed,
    without_packets,
)
from tocsin.errors import AgentError, LocalProtocolError, TocsinError, UnexpectedResponse
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.smp_responses import PacketStatus
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.lifecycles import WANTED
from tocsin.protocol.ntf.responses import QueueSubscribed, SubscriptionChecked
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus
from tocsin.protocol.router_answers import Done


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


_ERRORS: Final[dict[Success | ErrorKind, Follow]] = {
    ErrorKind.TEMPORARY: Follow.RETRY,
    ErrorKind.AUTH: Follow.GIVE_UP,
    ErrorKind.PERMANENT: Follow.GIVE_UP,
}
FOLLOWS: Final[dict[NextAction, dict[Success | ErrorKind, Follow]]] = {
    NextAction.CREATE_KEYS: {Success.DONE: Follow.SUBSCRIBE, **_ERRORS},
    NextAction.CREATE_OLD_KEYS: {Success.DONE: Follow.SUBSCRIBE, **_ERRORS},
    NextAction.ASK_FATE: {**_ERRORS, ErrorKind.AUTH: Follow.RECREATE},
    NextAction.SEND_PACKET: {**_ERRORS, ErrorKind.AUTH: Follow.RECREATE},
    # AUTH: the queue is gone, and its notifier with it. The reference keeps the row (item 16).
    NextAction.DELETE_KEYS: {Success.DONE: Follow.DROP, **_ERRORS, ErrorKind.AUTH: Follow.DROP},
    # AUTH: the token is unknown or not active there, or the queue is registered with another key.
    NextAction.SUBSCRIBE: {
        Success.DONE: Follow.FIRST_CHECK,
        **_ERRORS,
        ErrorKind.AUTH: Follow.GIVE_UP_AND_CHECK_TOKEN,
    },
    # LOST: SNEW alone would return the same dead subscription (item 14), so it needs new credentials.
    NextAction.CHECK: {
        Success.KEPT: Follow.NEXT_CHECK,
        Success.LOST: Follow.RECREATE,
        **_ERRORS,
        ErrorKind.AUTH: Follow.RECREATE,
    },
}

_FATES_OF_SENT: Final = {
    PacketFate.ACCEPTED: Follow.READY,
    PacketFate.PENDING: Follow.ASK_SOON,
    PacketFate.UNKNOWN_KEY: Follow.SEAL_AGAIN,
    PacketFate.BAD_TOKEN: Follow.GIVE_UP_AND_CHECK_TOKEN,
    PacketFate.BAD_QUEUE: Follow.RECREATE,
    PacketFate.UNSUPPORTED: Follow.OLD_WAY,
}
FATES: Final[dict[NextAction, dict[PacketFate, Follow]]] = {
    # The id was new: the router would refuse another new one for the same reason, whatever that is.
    NextAction.CREATE_KEYS: _FATES_OF_SENT | {PacketFate.BAD_QUEUE: Follow.GIVE_UP},
    NextAction.ASK_FATE: _FATES_OF_SENT,
    NextAction.SEND_PACKET: _FATES_OF_SENT,
}

_REFUSALS: Final = {
    PacketFate.BAD_TOKEN: "the NTF router does not know the token, or the token is not active there",
    PacketFate.BAD_QUEUE: "the NTF router does not accept queues of this SMP router, or no more queues",
}


@dataclass(frozen=True, slots=True)
class RowDecision:
    """The consequences of an answer for one row."""

    row: AgentSubscription
    """The row as the worker read it."""
    completion: Completion | None = None
    """The result to write; None: repeat the action after a delay."""
    failure: TocsinError | None = None
    """Why the agent gives up, for the app."""
    check_token: bool = False
    """The NTF router refused something that a valid token may do."""
    fetch_key: bool = False
    """The key for packets has expired, or the NTF router does not know it."""


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """The time of an answer, and the delays that decisions use."""

    now: float
    checks: CheckIntervals
    pending: float = 0.0
    """Seconds until the agent asks again about a packet that has not reached the NTF router."""


def write(
    row: AgentSubscription, then: AgentSubscription | None, queue: ReceiveQueue | None = None
) -> RowDecision:
    return RowDecision(row, Completion(row, then, queue))


def after_error(
    row: AgentSubscription,
    error: TocsinError,
    token: AgentToken | None,
    now: float,
    kind: ErrorKind | None = None,
) -> RowDecision:
    assert row.action is not None
    follow = FOLLOWS[row.action][kind or worker_error_kind(error)]
    match follow:
        case Follow.RETRY:
            return RowDecision(row)
        case Follow.DROP:
            return write(row, None)
        case Follow.RECREATE:
            assert token is not None
            return write(row, recreated(row, token.router, now))
    check_token = follow is Follow.GIVE_UP_AND_CHECK_TOKEN
    return replace(write(row, given_up(row)), failure=error, check_token=check_token)


def after_move(
    row: AgentSubscription, queue: ReceiveQueue | None, token: AgentToken, now: float
) -> RowDecision:
    """Decide about a row of another queue or token than the present one: it starts over, or ends with its queue."""
    if queue is None:
        error = LocalProtocolError("the connection has no queue to receive messages")
        return after_error(row, error, token, now)
    return write(row, started(queue, token, now))


def after_key_creation(
    row: AgentSubscription,
    queue: ReceiveQueue,
    made: QueueNotifier | TocsinError,
    token: AgentToken,
    now: float,
) -> RowDecision:
    if isinstance(made, TocsinError):
        return after_error(row, made, token, now)
    return write(row, keys_created(row, made.notifier_id, now), replace(queue, notifier=made))


def after_association(
    row: AgentSubscription,
    queue: ReceiveQueue,
    made: tuple[QueueNotifier, PacketFate] | TocsinError,
    token: AgentToken,
    times: DecisionTimes,
) -> RowDecision:
    if isinstance(made, TocsinError):
        return after_error(row, made, token, times.now, packet_error_kind(made))
    notifier, fate = made
    assert token.token_id is not None
    sent = packet_sent(row, notifier.notifier_id, token.token_id, times.now)
    return _after_fate(row, sent, fate, token, times, replace(queue, notifier=notifier))


def after_packet(
    row: AgentSubscription, answer: Response | TocsinError, token: AgentToken, times: DecisionTimes
) -> RowDecision:
    if isinstance(answer, PacketStatus):
        return _after_fate(row, row, answer.fate, token, times, None)
    error = error_of(answer)
    return after_error(row, error, token, times.now, packet_error_kind(error))


def _after_fate(
    row: AgentSubscription,
    sent: AgentSubscription,
    fate: PacketFate,
    token: AgentToken,
    times: DecisionTimes,
    queue: ReceiveQueue | None,
) -> RowDecision:
    """`sent` is the row with everything that is known since the packet was sent."""
    assert row.action is not None
    now, checks = times.now, times.checks
    follow = FATES[row.action][fate]
    match follow:
        case Follow.READY:
            interval = checks.first if row.subscription_id is None else checks.then
            return write(row, associated(sent, now + interval), queue)
        case Follow.ASK_SOON:
            return write(row, ask_again(sent, now + times.pending), queue)
        case Follow.SEAL_AGAIN if row.action is NextAction.SEND_PACKET:
            return RowDecision(row, fetch_key=True)
        case Follow.SEAL_AGAIN:
            return replace(write(row, seal_again(sent, now), queue), fetch_key=True)
        case Follow.OLD_WAY:
            return write(row, without_packets(sent, now), queue)
        case Follow.RECREATE:
            return write(row, recreated(sent, token.router, now), queue)
    return replace(
        write(row, given_up(sent), queue),
        failure=AgentError(_REFUSALS[fate]),
        check_token=follow is Follow.GIVE_UP_AND_CHECK_TOKEN,
    )


def after_lost_support(row: AgentSubscription, token: AgentToken, times: DecisionTimes) -> RowDecision:
    """Decide about a packet when the SMP router no longer supports packets. An accepted one stays valid."""
    if row.subscription_id is None:
        return write(row, recreated(row, token.router, times.now))
    return write(row, ask_again(row, times.now + times.checks.then))


def after_deletion(
    row: AgentSubscription, answer: Response | TocsinError, token: AgentToken | None, now: float
) -> RowDecision:
    if isinstance(answer, Done):
        return write(row, None)
    return after_error(row, error_of(answer), token, now)


def after_subscription(
    row: AgentSubscription,
    notifier_id: bytes,
    answer: Response | TocsinError,
    token: AgentToken,
    times: DecisionTimes,
) -> RowDecision:
    if not isinstance(answer, QueueSubscribed):
        return after_error(row, error_of(answer), token, times.now)
    assert token.token_id is not None
    due_at = times.now + times.checks.first
    return write(row, subscribed(row, answer.subscription_id, token.token_id, notifier_id, due_at))


def after_check(
    row: AgentSubscription, answer: Response | TocsinError, token: AgentToken, times: DecisionTimes
) -> RowDecision:
    if not isinstance(answer, SubscriptionChecked):
        return after_error(row, error_of(answer), token, times.now)
    if FOLLOWS[NextAction.CHECK][check_result(answer.status)] is Follow.RECREATE:
        return write(row, recreated(row, token.router, times.now))
    return write(row, check_again(row, answer.status, times.now + times.checks.then))


def check_result(status: SubscriptionStatus) -> Success:
    """SERVICE needs another notifier, too: the SMP router refused the NTF router's service for this one (v7.md 7.1)."""
    kept = status in WANTED and status is not SubscriptionState.SERVICE
    return Success.KEPT if kept else Success.LOST


def error_of(answer: Response | TocsinError) -> TocsinError:
    """Return why an answer is not the expected one."""
    if isinstance(answer, TocsinError):
        return answer
    return UnexpectedResponse(f"the router answered with {answer.tag.decode()}")
