"""Findings from evidence: one sentence, one verdict and one next step for everything that can be wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.agent_samples import (
    DEVICE,
    NOTIFIER,
    OTHER_NTF,
    agent_token,
    receive_queue,
    subscription,
)
from tocsin.agent.diagnosis.diagnosis import diagnosis, repairs, worst
from tocsin.agent.diagnosis.evidence import Evidence, Reached
from tocsin.agent.diagnosis.findings import FindingSubject, FindingVerdict, NotificationFinding, Repair
from tocsin.agent.store.records import (
    AgentConnection,
    AgentToken,
    NextAction,
    NotificationMode,
    RegistrationDue,
    SubscriptionPhase,
    VerificationDue,
)
from tocsin.clients import RouterRefused
from tocsin.errors import ConnectFailed, ResponseTimeout, TocsinError
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.ntf.statuses import (
    InvalidReason,
    SubscriptionFailed,
    SubscriptionState,
    TokenState,
    TokenStatus,
)
from tocsin.protocol.smp.queue_information import QueueInformation

NAME = "connection-000id"
AUTH = RouterRefused(ErrorCode.AUTH)
DOWN = ConnectFailed("no connection to port 1 of 127.0.0.1")
ROW = subscription(
    NAME,
    phase=SubscriptionPhase.CREATED,
    action=NextAction.CHECK,
    due_at=7_300.0,
    notifier_id=NOTIFIER.notifier_id,
    subscription_id=b"s" * 24,
    token_id=b"t" * 24,
    status=SubscriptionState.NEW,
)
QUEUE = receive_queue(NAME, notifier=NOTIFIER)
HEALTHY = Evidence(
    100.0,
    AgentConnection(NAME),
    agent_token(),
    QUEUE,
    ROW,
    Reached(0.02, 0.001),
    TokenStatus(TokenState.ACTIVE),
    SubscriptionState.ACTIVE,
    Reached(0.02, 0.001),
    QueueInformation(True, True, None, 1, None),
)


def findings(**changes: Any) -> dict[FindingSubject, NotificationFinding]:
    return {finding.subject: finding for finding in diagnosis(replace(HEALTHY, **changes))}


def status(state: TokenState, reason: InvalidReason | None = None) -> TokenStatus:
    return TokenStatus(state, reason)


def test_everything_in_order_is_said_with_nothing_to_do() -> None:
    found = diagnosis(HEALTHY)
    assert [finding.subject for finding in found] == list(FindingSubject)
    assert {finding.verdict for finding in found} == {FindingVerdict.OK}
    assert not any(finding.next_step for finding in found)
    assert repairs(found) == []
    assert worst(found) is FindingVerdict.OK


WRONG: list[tuple[str, dict[str, Any], FindingSubject, str, Repair | None]] = [
    ("muted", {"connection": AgentConnection(NAME, False)}, FindingSubject.CONNECTION, "switched off", None),
    ("no queue", {"queue": None}, FindingSubject.CONNECTION, "no queue", None),
    ("no token", {"token": None}, FindingSubject.TOKEN, "No device token", None),
    (
        "periodic",
        {"token": agent_token(mode=NotificationMode.PERIODIC)},
        FindingSubject.TOKEN,
        "periodic mode",
        None,
    ),
    (
        "not registered",
        {"token": agent_token(action=RegistrationDue(), token_id=None)},
        FindingSubject.TOKEN,
        "not finished",
        Repair.REGISTER_TOKEN,
    ),
    (
        "verification lost",
        {"token": agent_token(action=VerificationDue(b"code"))},
        FindingSubject.TOKEN,
        "not confirmed",
        Repair.REGISTER_TOKEN,
    ),
    ("NTF router down", {"ntf_router": DOWN}, FindingSubject.NTF_ROUTER, "cannot be reached", None),
    ("SMP router down", {"smp_router": DOWN}, FindingSubject.SMP_ROUTER, "cannot be reached", None),
    (
        "token unknown",
        {"token_status": AUTH},
        FindingSubject.TOKEN_AT_ROUTER,
        "no longer knows the token",
        Repair.REGISTER_TOKEN,
    ),
    (
        "token invalid",
        {"token_status": status(TokenState.INVALID, InvalidReason.UNREGISTERED)},
        FindingSubject.TOKEN_AT_ROUTER,
        "INVALID (UNREGISTERED)",
        Repair.REGISTER_TOKEN,
    ),
    (
        "token not verified",
        {"token_status": status(TokenState.REGISTERED)},
        FindingSubject.TOKEN_AT_ROUTER,
        "REGISTERED",
        Repair.REGISTER_TOKEN,
    ),
    (
        "queue gone",
        {"queue_information": AUTH},
        FindingSubject.CREDENTIALS,
        "no longer knows the queue",
        None,
    ),
    (
        "no credentials here",
        {"queue": replace(QUEUE, notifier=None)},
        FindingSubject.CREDENTIALS,
        "no notifier credentials here",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "no credentials there",
        {"queue_information": QueueInformation(True, False, None, 0, None)},
        FindingSubject.CREDENTIALS,
        "SMP router has no notifier credentials",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    ("no row", {"row": None}, FindingSubject.SUBSCRIPTION, "no subscription", Repair.RECREATE_SUBSCRIPTION),
    (
        "given up",
        {"row": replace(ROW, action=None)},
        FindingSubject.SUBSCRIPTION,
        "gave up",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "under way",
        {"row": replace(ROW, action=NextAction.SUBSCRIBE, subscription_id=None, due_at=None)},
        FindingSubject.SUBSCRIPTION,
        "due now",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "former token",
        {"row": replace(ROW, token_id=b"f" * 24)},
        FindingSubject.SUBSCRIPTION,
        "former token",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "other NTF router",
        {"row": replace(ROW, ntf_router=OTHER_NTF)},
        FindingSubject.SUBSCRIPTION,
        "another NTF router",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "other credentials",
        {"row": replace(ROW, notifier_id=b"o" * 24)},
        FindingSubject.SUBSCRIPTION,
        "other credentials",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "unknown there",
        {"subscription_status": AUTH},
        FindingSubject.SUBSCRIPTION,
        "does not know the subscription",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "error of the SMP router",
        {"subscription_status": SubscriptionFailed("BLOCKED")},
        FindingSubject.SUBSCRIPTION,
        "BLOCKED",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    *(
        (
            state.value,
            {"subscription_status": state},
            FindingSubject.SUBSCRIPTION,
            f"({state})",
            Repair.RECREATE_SUBSCRIPTION,
        )
        for state in (SubscriptionState.END, SubscriptionState.DELETED, SubscriptionState.AUTH)
    ),
]


@pytest.mark.parametrize(
    ("_name", "changes", "subject", "says", "repair"), WRONG, ids=[row[0] for row in WRONG]
)
def test_what_is_wrong_is_named_with_a_next_step(
    _name: str, changes: dict[str, Any], subject: FindingSubject, says: str, repair: Repair | None
) -> None:
    finding = findings(**changes)[subject]
    assert finding.verdict is FindingVerdict.WRONG
    assert says in finding.text
    assert finding.next_step
    assert finding.repair is repair


UNKNOWN: list[tuple[dict[str, Any], FindingSubject, str]] = [
    ({"token_status": None, "ntf_router": DOWN}, FindingSubject.TOKEN_AT_ROUTER, "could not be reached"),
    ({"token_status": ResponseTimeout("no answer")}, FindingSubject.TOKEN_AT_ROUTER, "no answer"),
    ({"token": agent_token(token_id=None)}, FindingSubject.TOKEN_AT_ROUTER, "no registered token"),
    ({"token_status": None}, FindingSubject.PROVIDER, "Only the NTF router"),
    ({"token_status": status(TokenState.CONFIRMED)}, FindingSubject.PROVIDER, "accepted the verification"),
    ({"token_status": status(TokenState.REGISTERED)}, FindingSubject.PROVIDER, "not accepted"),
    ({"token_status": status(TokenState.EXPIRED)}, FindingSubject.PROVIDER, "not used for a long time"),
    ({"token": None, "ntf_router": None}, FindingSubject.NTF_ROUTER, "no token"),
    ({"queue": None, "smp_router": None}, FindingSubject.SMP_ROUTER, "no queue"),
    ({"queue": None, "queue_information": None}, FindingSubject.CREDENTIALS, "no queue"),
    ({"queue_information": None, "smp_router": DOWN}, FindingSubject.CREDENTIALS, "could not be reached"),
    ({"subscription_status": None}, FindingSubject.SUBSCRIPTION, "At the last check it was NEW"),
    ({"subscription_status": SubscriptionState.PENDING}, FindingSubject.SUBSCRIPTION, "PENDING"),
    ({"subscription_status": SubscriptionState.INACTIVE}, FindingSubject.SUBSCRIPTION, "INACTIVE"),
    (
        {"connection": AgentConnection(NAME, False)},
        FindingSubject.SUBSCRIPTION,
        "still an earlier subscription",
    ),
]


@pytest.mark.parametrize(("changes", "subject", "says"), UNKNOWN)
def test_what_cannot_be_told_is_not_called_wrong(
    changes: dict[str, Any], subject: FindingSubject, says: str
) -> None:
    finding = findings(**changes)[subject]
    assert finding.verdict is FindingVerdict.UNKNOWN
    assert says in finding.text
    assert finding.repair is None


@pytest.mark.parametrize("reason", [None, *InvalidReason])
def test_every_reason_of_the_provider_is_explained(reason: InvalidReason | None) -> None:
    finding = findings(token_status=status(TokenState.INVALID, reason))[FindingSubject.PROVIDER]
    assert finding.verdict is FindingVerdict.WRONG
    assert "refused the device token" in finding.text


def test_every_state_of_a_subscription_has_words() -> None:
    for state in SubscriptionState:
        assert f"({state})" in findings(subscription_status=state)[FindingSubject.SUBSCRIPTION].text


def test_a_muted_connection_is_not_asked_for_credentials() -> None:
    found = findings(
        connection=AgentConnection(NAME, False),
        queue=replace(QUEUE, notifier=None),
        queue_information=QueueInformation(True, False, None, 0, None),
        row=None,
    )
    assert found[FindingSubject.CREDENTIALS].verdict is FindingVerdict.OK
    assert found[FindingSubject.SUBSCRIPTION].verdict is FindingVerdict.OK
    assert repairs(found.values()) == []


def test_the_token_is_repaired_first_because_subscriptions_follow_it() -> None:
    found = diagnosis(replace(HEALTHY, token_status=AUTH, row=None))
    assert {each.repair for each in found} > {Repair.REGISTER_TOKEN, Repair.RECREATE_SUBSCRIPTION}
    assert repairs(found) == [Repair.REGISTER_TOKEN]


def test_findings_tell_no_secrets() -> None:
    token: AgentToken = agent_token(action=VerificationDue(b"secret code"))
    for changes in [row[1] for row in WRONG] + [{"token": token}]:
        said = str(diagnosis(replace(HEALTHY, **changes)))
        for secret in (DEVICE.token, b"secret code", NOTIFIER.notifier_id, b"the key", b"t" * 24):
            assert secret.decode() not in said


# Direct notifications

DIRECT_NOTIFIER = replace(NOTIFIER, key=None)
DIRECT: dict[str, Any] = {
    "queue": replace(QUEUE, notifier=DIRECT_NOTIFIER),
    "row": replace(ROW, action=NextAction.ASK_FATE, subscription_id=NOTIFIER.notifier_id),
    "subscription_status": None,
}


@pytest.mark.parametrize(
    ("fate", "verdict", "says"),
    [
        (PacketFate.ACCEPTED, FindingVerdict.OK, "The NTF router has the queue"),
        (PacketFate.PENDING, FindingVerdict.UNKNOWN, "has not reached the NTF router with the packet yet"),
        (PacketFate.BAD_TOKEN, FindingVerdict.WRONG, "did not accept the packet: bad token"),
        (RouterRefused(CommandFault.PROHIBITED), FindingVerdict.WRONG, "has no packet for the queue"),
        (DOWN, FindingVerdict.UNKNOWN, "gave no answer: no connection"),
        (None, FindingVerdict.UNKNOWN, "does not support direct notifications now"),
    ],
)
def test_packet_is_what_a_direct_subscription_is_judged_by(
    fate: PacketFate | TocsinError | None, verdict: FindingVerdict, says: str
) -> None:
    found = findings(**DIRECT, packet_fate=fate)[FindingSubject.SUBSCRIPTION]
    assert found.verdict is verdict
    assert says in found.text
    assert (found.repair is Repair.RECREATE_SUBSCRIPTION) is (verdict is FindingVerdict.WRONG)


def test_packet_that_waits_is_nothing_to_repair() -> None:
    row = replace(DIRECT["row"], subscription_id=None)
    found = findings(**{**DIRECT, "row": row}, packet_fate=PacketFate.PENDING)[FindingSubject.SUBSCRIPTION]
    assert (found.verdict, found.repair) == (FindingVerdict.UNKNOWN, None)


def test_mentions_only_is_told() -> None:
    connection = AgentConnection(NAME, minimum=MinimumPriority.PRIORITY)
    found = findings(connection=connection)[FindingSubject.CONNECTION]
    assert found.verdict is FindingVerdict.OK
    assert "mentions and replies only" in found.text
