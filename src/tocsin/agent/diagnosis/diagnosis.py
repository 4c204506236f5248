"""Findings about one connection's notifications, and repairs.

`diagnosis` is pure. `repair` acts through the agent's token and supervisor, so that a crash in between loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tocsin.agent.agent import Agent
from tocsin.agent.diagnosis.evidence import Evidence, Reached
from tocsin.agent.diagnosis.findings import FindingSubject, FindingVerdict, NotificationFinding, Repair
from tocsin.agent.diagnosis.subscription import subscription_finding
from tocsin.agent.runtime.error_kinds import ErrorKind, error_kind
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.records import ACTIVE, AgentToken, NotificationMode, RegistrationDue, VerificationDue
from tocsin.agent.subscriptions.row_changes import started
from tocsin.errors import AgentError, TocsinError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus
from tocsin.protocol.smp.queue_information import QueueInformation

__all__ = [
    "FindingSubject",
    "FindingVerdict",
    "NotificationFinding",
    "Repair",
    "diagnosis",
    "repair",
    "repairs",
    "worst",
]


def diagnosis(evidence: Evidence) -> list[NotificationFinding]:
    """Return a finding for each thing a notification needs, in the order in which it needs them."""
    return [
        _connection(evidence),
        _token(evidence),
        _router(None if evidence.token is None else evidence.token.router, Scheme.NTF, evidence.ntf_router),
        _token_at_router(evidence),
        _provider(evidence),
        _router(None if evidence.queue is None else evidence.queue.router, Scheme.SMP, evidence.smp_router),
        _credentials(evidence),
        subscription_finding(evidence),
    ]


def _connection(evidence: Evidence) -> NotificationFinding:
    subject = FindingSubject.CONNECTION
    if evidence.queue is None:
        return subject.wrong(
            "The connection has no queue to receive messages.", "Delete it and connect again."
        )
    if not evidence.connection.notifications:
        step = f"Run `tocsin agent unmute {evidence.connection.connection_id}`."
        return subject.wrong("Notifications of this connection are switched off.", step)
    if evidence.connection.minimum is not MinimumPriority.ALL:
        return subject.ok("Notifications of this connection are wanted for mentions and replies only.")
    return subject.ok("Notifications of this connection are wanted.")


# The token

_REGISTER: Final = "Run `tocsin agent register` with the device token."
_VERIFY: Final = "Run `tocsin agent verify` with the push that came."
_CODE_AGAIN: Final = f"{_VERIFY} If none came, --fix asks for another."


def _token(evidence: Evidence) -> NotificationFinding:
    subject, token = FindingSubject.TOKEN, evidence.token
    if token is None:
        return subject.wrong("No device token is registered.", _REGISTER)
    if token.mode is NotificationMode.PERIODIC:
        return subject.wrong(
            "The token is in periodic mode: pushes wake the device occasionally, not for every message.",
            "Run `tocsin agent register` with --mode instant, if that is what you want.",
        )
    match token.action:
        case RegistrationDue():
            return subject.wrong("The registration is not finished.", _REGISTER, repair=Repair.REGISTER_TOKEN)
        case VerificationDue():
            return subject.wrong(
                "The code was received, but the NTF router has not confirmed it.",
                _REGISTER,
                repair=Repair.REGISTER_TOKEN,
            )
    return subject.ok(f"The token is registered for instant notifications; it was {_said(token.status)}.")


def _token_at_router(evidence: Evidence) -> NotificationFinding:
    subject, status = FindingSubject.TOKEN_AT_ROUTER, evidence.token_status
    if evidence.token is None or evidence.token.token_id is None:
        return subject.unknown("There is no registered token to ask about.", _REGISTER)
    if isinstance(status, TocsinError) and error_kind(status) is ErrorKind.AUTH:
        return subject.wrong(
            "The NTF router no longer knows the token.",
            "Run this with --fix, or `tocsin agent register` again.",
            repair=Repair.REGISTER_TOKEN,
        )
    if status is None or isinstance(status, TocsinError):
        return _not_asked(subject, "the NTF router", status)
    if status == ACTIVE:
        return subject.ok("The NTF router says that the token is ACTIVE.")
    text = f"The NTF router says that the token is {_said(status)}."
    step = _INVALID_STEP if status.state is TokenState.INVALID else _CODE_AGAIN
    return subject.wrong(text, step, repair=Repair.REGISTER_TOKEN)


_INVALID_STEP: Final = "Register the device token that the provider issues now; --fix tries the present one."
_REASONS: Final[dict[InvalidReason | None, str]] = {
    None: "without a reason",
    InvalidReason.BAD: "it is not a device token of this provider, or one of its other environment",
    InvalidReason.TOPIC: "it belongs to another app",
    InvalidReason.EXPIRED: "it has expired",
    InvalidReason.UNREGISTERED: "the app was removed from the device, or the token was replaced",
}


def _provider(evidence: Evidence) -> NotificationFinding:
    subject, status = FindingSubject.PROVIDER, evidence.token_status
    if not isinstance(status, TokenStatus):
        return subject.unknown("Only the NTF router knows what the push provider says.")
    match status.state:
        case TokenState.INVALID:
            text = f"The push provider refused the device token: {_REASONS[status.reason]}."
            return subject.wrong(text, _INVALID_STEP)
        case TokenState.ACTIVE:
            return subject.ok("The push provider accepted the device token; the verification push arrived.")
        case TokenState.CONFIRMED:
            return subject.unknown("The push provider accepted the verification push.", _VERIFY)
        case TokenState.EXPIRED:
            return subject.unknown("The token was not used for a long time.", _REGISTER)
    return subject.unknown("The push provider has not accepted the verification push yet.")


def _said(status: TokenStatus) -> str:
    return status.state if status.reason is None else f"{status.state} ({status.reason})"


# Routers


def _router(
    location: RouterLocation | None, scheme: Scheme, reached: Reached | TocsinError | None
) -> NotificationFinding:
    subject = FindingSubject.NTF_ROUTER if scheme is Scheme.NTF else FindingSubject.SMP_ROUTER
    if location is None or reached is None:
        missing = "token" if scheme is Scheme.NTF else "queue"
        return subject.unknown(f"There is no {scheme.upper()} router to ask, because there is no {missing}.")
    name = RouterAddress(scheme, location).name
    if isinstance(reached, TocsinError):
        step = f"Try `tocsin ping {location.text(scheme)}`. The agent continues when the router is back."
        return subject.wrong(f"The {scheme.upper()} router {name} cannot be reached: {reached}.", step)
    times = f"{reached.connect_seconds * 1000:.0f} ms to connect, PING {reached.ping_seconds * 1000:.0f} ms"
    return subject.ok(f"The {scheme.upper()} router {name} answers: {times}.")


def _not_asked(subject: FindingSubject, whom: str, error: TocsinError | None) -> NotificationFinding:
    because = "it could not be reached" if error is None else str(error)
    return subject.unknown(f"{whom[0].upper()}{whom[1:]} did not answer the question: {because}.")


# The queue


def _credentials(evidence: Evidence) -> NotificationFinding:
    subject, queue, found = FindingSubject.CREDENTIALS, evidence.queue, evidence.queue_information
    if queue is None:
        return subject.unknown("There is no queue.")
    if isinstance(found, TocsinError) and error_kind(found) is ErrorKind.AUTH:
        return subject.wrong(
            "The SMP router no longer knows the queue: messages to it are lost.",
            "Delete the connection and connect again.",
        )
    wanted = evidence.connection.notifications
    if queue.notifier is None and wanted:
        return subject.wrong(
            "The queue has no notifier credentials here.", _FIX, repair=Repair.RECREATE_SUBSCRIPTION
        )
    if not isinstance(found, QueueInformation):
        return _not_asked(subject, "the SMP router", found)
    waiting = f"{found.size} messages wait in it" if found.size != 1 else "1 message waits in it"
    if not found.notifier and wanted:
        return subject.wrong(
            f"The SMP router has no notifier credentials for the queue; {waiting}.",
            _FIX,
            repair=Repair.RECREATE_SUBSCRIPTION,
        )
    if not found.notifier:
        return subject.ok(f"The queue has no notifier credentials, as it should be; {waiting}.")
    return subject.ok(f"The queue has notifier credentials at the SMP router; {waiting}.")


_FIX: Final = "Run this with --fix."


# Repair


def repairs(findings: Iterable[NotificationFinding]) -> list[Repair]:
    """Return what to do, without repetitions. Subscriptions follow by themselves when a token becomes active."""
    found = {finding.repair for finding in findings if finding.repair is not None}
    return [Repair.REGISTER_TOKEN] if Repair.REGISTER_TOKEN in found else sorted(found)


async def repair(agent: Agent, store: AgentStore, connection_id: str, what: Repair, *, now: float) -> str:
    """Repair one thing and return what was done. Raises TocsinError if a router cannot be asked or refuses."""
    token = await agent.tokens.current()
    match what:
        case Repair.REGISTER_TOKEN:
            return _registered(await _register_again(agent, token))
        case Repair.RECREATE_SUBSCRIPTION:
            queues = await store.primary_queues([connection_id])
            if not queues:
                raise AgentError("the connection has no queue to receive messages")
            await store.put_subscriptions([started(queue, token, now) for queue in queues])
            await agent.supervisor.create([connection_id])
            return "The agent requests new notifier credentials and a new subscription."


async def _register_again(agent: Agent, token: AgentToken) -> TokenStatus:
    if token.token_id is not None:
        status = await agent.tokens.check()
        current = await agent.tokens.current()
        if status == ACTIVE or current.token_id != token.token_id:
            return status  # it was in order, or another one has replaced it
    return await agent.tokens.register(token.device_token, token.mode)


def _registered(status: TokenStatus) -> str:
    if status == ACTIVE:
        return "The token is active."
    return f"The token was registered again and is {_said(status)}. {_VERIFY}"


def worst(findings: Sequence[NotificationFinding]) -> FindingVerdict:
    verdicts = {finding.verdict for finding in findings}
    return next(
        each for each in (FindingVerdict.WRONG, FindingVerdict.UNKNOWN, FindingVerdict.OK) if each in verdicts
    )
