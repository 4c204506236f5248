"""What is to be said about a connection's subscription at the NTF router."""

from __future__ import annotations

from typing import Final

from tocsin.agent.diagnosis.evidence import Evidence, is_of_token
from tocsin.agent.diagnosis.findings import Finding, Repair, Subject, Verdict, ok, unknown, wrong
from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind
from tocsin.agent.store.records import AgentSubscription, NextAction
from tocsin.agent.subscriptions.packet_fates import packet_error_kind
from tocsin.agent.token.registration import notifies_instantly
from tocsin.errors import TocsinError
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus

_FIX: Final = "Run this with --fix; the next check would repair it too."

_STATES: Final[dict[SubscriptionState, tuple[Verdict, str]]] = {
    SubscriptionState.ACTIVE: (Verdict.OK, "the NTF router is subscribed to the queue (ACTIVE)"),
    SubscriptionState.SERVICE: (Verdict.OK, "the NTF router is subscribed as a service (SERVICE)"),
    SubscriptionState.NEW: (Verdict.UNKNOWN, "the NTF router has not asked the SMP router yet (NEW)"),
    SubscriptionState.PENDING: (
        Verdict.UNKNOWN,
        "the SMP router has not answered the NTF router yet (PENDING)",
    ),
    SubscriptionState.INACTIVE: (
        Verdict.UNKNOWN,
        "the NTF router has lost its connection to the SMP router and tries again (INACTIVE)",
    ),
    SubscriptionState.END: (Verdict.WRONG, "somebody else subscribed to the queue's notifications (END)"),
    SubscriptionState.DELETED: (Verdict.WRONG, "the SMP router deleted the queue or its notifier (DELETED)"),
    SubscriptionState.AUTH: (Verdict.WRONG, "the SMP router refused the notifier credentials (AUTH)"),
}

_PENDING: Final = {
    NextAction.CREATE_KEYS: "credentials are to be asked for at the SMP router",
    NextAction.CREATE_OLD_KEYS: "credentials are to be asked for at the SMP router",
    NextAction.ASK_FATE: "the SMP router is asked what became of the packet",
    NextAction.SEND_PACKET: "the SMP router is to be given another packet",
    NextAction.SUBSCRIBE: "the subscription is to be made at the NTF router",
    NextAction.DELETE_KEYS: "the credentials are to be deleted at the SMP router",
    NextAction.CHECK: "it is checked at the NTF router from time to time",
}


def subscription_finding(evidence: Evidence) -> Finding:
    row, token, wanted = evidence.row, evidence.token, evidence.connection.notifications
    if not wanted or token is None or not notifies_instantly(token):
        return _without_wish(row)
    if row is None:
        return _wrong("There is no subscription.")
    if row.action is None:
        return _wrong("The agent gave up on the subscription after a refusal.")
    if row.subscription_id is None and row.action is not NextAction.ASK_FATE:
        return _under_way(row, evidence)
    if not is_of_token(row, token):
        return _wrong("The subscription belongs to a former token or another NTF router.")
    if _notifier_differs(evidence, row):
        return _wrong("The subscription was made with other credentials than the queue has now.")
    if row.direct:
        return _direct(evidence.packet_fate, row, evidence)
    return _at_router(evidence.subscription_status, row, evidence)


def _without_wish(row: AgentSubscription | None) -> Finding:
    """Muted, or without an active token in instant mode."""
    if row is None:
        return ok(Subject.SUBSCRIPTION, "There is no subscription, and none is asked for at present.")
    pending = "" if row.action is None else f": {_PENDING[row.action]}"
    return unknown(Subject.SUBSCRIPTION, f"There is a subscription from before{pending}.")


def _under_way(row: AgentSubscription, evidence: Evidence) -> Finding:
    assert row.action is not None
    text = f"The subscription is not made yet: {_PENDING[row.action]}, {due(row, evidence.now)}."
    step = "Leave `tocsin agent listen` running, or run this with --fix."
    return wrong(Subject.SUBSCRIPTION, text, step, repair=Repair.RECREATE_SUBSCRIPTION)


def _notifier_differs(evidence: Evidence, row: AgentSubscription) -> bool:
    queue = evidence.queue
    return queue is not None and (queue.notifier is None or queue.notifier.notifier_id != row.notifier_id)


def _at_router(
    status: SubscriptionStatus | TocsinError | None, row: AgentSubscription, evidence: Evidence
) -> Finding:
    if isinstance(status, TocsinError) and error_kind(status) is ErrorKind.AUTH:
        return _wrong("The NTF router does not know the subscription.")
    if isinstance(status, SubscriptionFailed):
        return _wrong(f"The SMP router refused the NTF router: {status.text}.")
    if isinstance(status, SubscriptionState):
        verdict, said = _STATES[status]
        if verdict is Verdict.WRONG:
            return _wrong(f"The subscription is dead: {said}.")
        if verdict is Verdict.OK:
            return ok(Subject.SUBSCRIPTION, f"{said[0].upper()}{said[1:]}; checked {due(row, evidence.now)}.")
        step = "Look again in a minute; if it stays, the NTF router cannot reach the SMP router."
        return unknown(Subject.SUBSCRIPTION, f"The subscription is there, but {said}.", step)
    because = "it could not be reached" if status is None else str(status)
    last = "nothing" if not isinstance(row.status, SubscriptionState) else row.status.value
    return unknown(
        Subject.SUBSCRIPTION, f"The NTF router did not tell: {because}. At the last check it said {last}."
    )


def _direct(fate: PacketFate | TocsinError | None, row: AgentSubscription, evidence: Evidence) -> Finding:
    """The SMP router tells what the NTF router said about the packet."""
    if fate is PacketFate.ACCEPTED:
        text = f"The NTF router has the queue, by a packet through the SMP router; checked {due(row, evidence.now)}."
        return ok(Subject.SUBSCRIPTION, text)
    if fate is PacketFate.PENDING:
        text = "The SMP router has not reached the NTF router yet with a packet, and goes on trying."
        return unknown(Subject.SUBSCRIPTION, text)
    if isinstance(fate, PacketFate):
        return _wrong(f"The NTF router did not take the packet: {fate.name.lower().replace('_', ' ')}.")
    if isinstance(fate, TocsinError) and packet_error_kind(fate) is ErrorKind.AUTH:
        return _wrong("The SMP router does not know of a packet for the queue.")
    because = "it does not know direct notifications now, or cannot be reached" if fate is None else str(fate)
    text = f"The SMP router did not tell: {because}. The NTF router had the queue at the last check."
    return unknown(Subject.SUBSCRIPTION, text)


def due(row: AgentSubscription, now: float) -> str:
    """When the row's action is due, in words."""
    if row.due_at is None or row.due_at <= now:
        return "due now"
    minutes = (row.due_at - now) / 60
    return f"next in {minutes:.0f} minutes" if minutes < 120 else f"next in {minutes / 60:.0f} hours"


def _wrong(text: str) -> Finding:
    return wrong(Subject.SUBSCRIPTION, text, _FIX, repair=Repair.RECREATE_SUBSCRIPTION)


__all__ = ["due", "subscription_finding"]
