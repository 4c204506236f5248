"""The finding about a connection's subscription at the NTF router."""

from __future__ import annotations

from typing import Final

from tocsin.agent.diagnosis.evidence import Evidence, is_of_token
from tocsin.agent.diagnosis.findings import FindingSubject, FindingVerdict, NotificationFinding, Repair
from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind, packet_error_kind
from tocsin.agent.store.records import AgentSubscription, NextAction, notifies_instantly
from tocsin.errors import TocsinError
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus

_FIX: Final = "Run this with --fix; the next check would repair it too."

_STATES: Final[dict[SubscriptionState, tuple[FindingVerdict, str]]] = {
    SubscriptionState.ACTIVE: (FindingVerdict.OK, "the NTF router is subscribed to the queue (ACTIVE)"),
    SubscriptionState.SERVICE: (
        FindingVerdict.WRONG,
        "the SMP router refused the NTF router's service for this queue (SERVICE)",
    ),
    SubscriptionState.NEW: (FindingVerdict.UNKNOWN, "the NTF router has not asked the SMP router yet (NEW)"),
    SubscriptionState.PENDING: (
        FindingVerdict.UNKNOWN,
        "the SMP router has not answered the NTF router yet (PENDING)",
    ),
    SubscriptionState.INACTIVE: (
        FindingVerdict.UNKNOWN,
        "the NTF router lost its connection to the SMP router and is reconnecting (INACTIVE)",
    ),
    SubscriptionState.END: (
        FindingVerdict.WRONG,
        "another client subscribed to the queue's notifications (END)",
    ),
    SubscriptionState.DELETED: (
        FindingVerdict.WRONG,
        "the SMP router deleted the queue or its notifier (DELETED)",
    ),
    SubscriptionState.AUTH: (FindingVerdict.WRONG, "the SMP router refused the notifier credentials (AUTH)"),
}

_PENDING: Final = {
    NextAction.CREATE_KEYS: "the agent will request credentials at the SMP router",
    NextAction.CREATE_OLD_KEYS: "the agent will request credentials at the SMP router",
    NextAction.ASK_FATE: "the agent will ask the SMP router about the packet",
    NextAction.SEND_PACKET: "the agent will send the SMP router another packet",
    NextAction.SUBSCRIBE: "the agent will subscribe at the NTF router",
    NextAction.DELETE_KEYS: "the agent will delete the credentials at the SMP router",
    NextAction.CHECK: "the agent checks it at the NTF router from time to time",
}


def subscription_finding(evidence: Evidence) -> NotificationFinding:
    row, token, wanted = evidence.row, evidence.token, evidence.connection.notifications
    if not wanted or token is None or not notifies_instantly(token):
        return _unwanted(row)
    if row is None:
        return _wrong("There is no subscription.")
    if row.action is None:
        return _wrong("The agent gave up on the subscription after a refusal.")
    if row.subscription_id is None and row.action is not NextAction.ASK_FATE:
        return _under_way(row, evidence)
    if not is_of_token(row, token):
        return _wrong("The subscription belongs to a former token or another NTF router.")
    if _notifier_differs(evidence, row):
        return _wrong("The subscription has other credentials than the queue has now.")
    if row.direct:
        return _direct(evidence.packet_fate, row, evidence)
    return _at_router(evidence.subscription_status, row, evidence)


def _unwanted(row: AgentSubscription | None) -> NotificationFinding:
    """Describe the row of a connection that is muted or has no active token in instant mode."""
    if row is None:
        return FindingSubject.SUBSCRIPTION.ok("There is no subscription, and none is needed at present.")
    pending = "" if row.action is None else f": {_PENDING[row.action]}"
    return FindingSubject.SUBSCRIPTION.unknown(f"There is still an earlier subscription{pending}.")


def _under_way(row: AgentSubscription, evidence: Evidence) -> NotificationFinding:
    assert row.action is not None
    text = f"The subscription is not ready yet: {_PENDING[row.action]}, {due(row, evidence.now)}."
    step = "Leave `tocsin agent listen` running, or run this with --fix."
    return FindingSubject.SUBSCRIPTION.wrong(text, step, repair=Repair.RECREATE_SUBSCRIPTION)


def _notifier_differs(evidence: Evidence, row: AgentSubscription) -> bool:
    queue = evidence.queue
    return queue is not None and (queue.notifier is None or queue.notifier.notifier_id != row.notifier_id)


def _at_router(
    status: SubscriptionStatus | TocsinError | None, row: AgentSubscription, evidence: Evidence
) -> NotificationFinding:
    if isinstance(status, TocsinError) and error_kind(status) is ErrorKind.AUTH:
        return _wrong("The NTF router does not know the subscription.")
    if isinstance(status, SubscriptionFailed):
        return _wrong(f"The SMP router refused the NTF router: {status.text}.")
    if isinstance(status, SubscriptionState):
        verdict, said = _STATES[status]
        if verdict is FindingVerdict.WRONG:
            return _wrong(f"The subscription is dead: {said}.")
        if verdict is FindingVerdict.OK:
            return FindingSubject.SUBSCRIPTION.ok(
                f"{said[0].upper()}{said[1:]}; checked {due(row, evidence.now)}."
            )
        step = "Look again in a minute; if it stays, the NTF router cannot reach the SMP router."
        return FindingSubject.SUBSCRIPTION.unknown(f"The subscription is there, but {said}.", step)
    because = "it could not be reached" if status is None else str(status)
    last = "unknown" if not isinstance(row.status, SubscriptionState) else row.status.value
    return FindingSubject.SUBSCRIPTION.unknown(
        f"The NTF router gave no status: {because}. At the last check it was {last}.",
    )


def _direct(
    fate: PacketFate | TocsinError | None, row: AgentSubscription, evidence: Evidence
) -> NotificationFinding:
    """Describe what the SMP router says about the packet."""
    if fate is PacketFate.ACCEPTED:
        text = f"The NTF router has the queue, by a packet through the SMP router; checked {due(row, evidence.now)}."
        return FindingSubject.SUBSCRIPTION.ok(text)
    if fate is PacketFate.PENDING:
        text = "The SMP router has not reached the NTF router with the packet yet, and keeps trying."
        return FindingSubject.SUBSCRIPTION.unknown(text)
    if isinstance(fate, PacketFate):
        return _wrong(f"The NTF router did not accept the packet: {fate.name.lower().replace('_', ' ')}.")
    if isinstance(fate, TocsinError) and packet_error_kind(fate) is ErrorKind.AUTH:
        return _wrong("The SMP router has no packet for the queue.")
    because = (
        "it does not support direct notifications now, or cannot be reached" if fate is None else str(fate)
    )
    text = f"The SMP router gave no answer: {because}. The NTF router had the queue at the last check."
    return FindingSubject.SUBSCRIPTION.unknown(text)


def due(row: AgentSubscription, now: float) -> str:
    """Say in words when the row's action is due."""
    if row.due_at is None or row.due_at <= now:
        return "due now"
    minutes = (row.due_at - now) / 60
    return f"next in {minutes:.0f} minutes" if minutes < 120 else f"next in {minutes / 60:.0f} hours"


def _wrong(text: str) -> NotificationFinding:
    return FindingSubject.SUBSCRIPTION.wrong(text, _FIX, repair=Repair.RECREATE_SUBSCRIPTION)


__all__ = ["due", "subscription_finding"]
