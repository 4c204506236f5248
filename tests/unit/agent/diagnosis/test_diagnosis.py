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
from tocsin.agent.diagnosis.diagnosis import Finding, Repair, Subject, Verdict, diagnosis, repairs, worst
from tocsin.agent.diagnosis.evidence import Evidence, Reached
from tocsin.agent.store.records import (
    AgentConnection,
    AgentToken,
    NextAction,
    NotificationMode,
    Register,
    SubscriptionPhase,
    Verify,
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


def findings(**changes: Any) -> dict[Subject, Finding]:
    return {finding.subject: finding for finding in diagnosis(replace(HEALTHY, **changes))}


def status(state: TokenState, reason: InvalidReason | None = None) -> TokenStatus:
    return TokenStatus(state, reason)


def test_everything_in_order_is_said_with_nothing_to_do() -> None:
    found = diagnosis(HEALTHY)
    assert [finding.subject for finding in found] == list(Subject)
    assert {finding.verdict for finding in found} == {Verdict.OK}
    assert not any(finding.next_step for finding in found)
    assert repairs(found) == []
    assert worst(found) is Verdict.OK


WRONG: list[tuple[str, dict[str, Any], Subject, str, Repair | None]] = [
    ("muted", {"connection": AgentConnection(NAME, False)}, Subject.CONNECTION, "switched off", None),
    ("no queue", {"queue": None}, Subject.CONNECTION, "no queue", None),
    ("no token", {"token": None}, Subject.TOKEN, "No device token", None),
    (
        "periodic",
        {"token": agent_token(mode=NotificationMode.PERIODIC)},
        Subject.TOKEN,
        "periodic mode",
        None,
    ),
    (
        "not registered",
        {"token": agent_token(action=Register(), token_id=None)},
        Subject.TOKEN,
        "not finished",
        Repair.REGISTER_TOKEN,
    ),
    (
        "verification lost",
        {"token": agent_token(action=Verify(b"code"))},
        Subject.TOKEN,
        "not confirmed",
        Repair.REGISTER_TOKEN,
    ),
    ("NTF router down", {"ntf_router": DOWN}, Subject.NTF_ROUTER, "cannot be reached", None),
    ("SMP router down", {"smp_router": DOWN}, Subject.SMP_ROUTER, "cannot be reached", None),
    (
        "token unknown",
        {"token_status": AUTH},
        Subject.TOKEN_AT_ROUTER,
        "not know the token",
        Repair.REGISTER_TOKEN,
    ),
    (
        "token invalid",
        {"token_status": status(TokenState.INVALID, InvalidReason.UNREGISTERED)},
        Subject.TOKEN_AT_ROUTER,
        "INVALID (UNREGISTERED)",
        Repair.REGISTER_TOKEN,
    ),
    (
        "token not verified",
        {"token_status": status(TokenState.REGISTERED)},
        Subject.TOKEN_AT_ROUTER,
        "REGISTERED",
        Repair.REGISTER_TOKEN,
    ),
    ("queue gone", {"queue_information": AUTH}, Subject.CREDENTIALS, "does not know the queue", None),
    (
        "no credentials here",
        {"queue": replace(QUEUE, notifier=None)},
        Subject.CREDENTIALS,
        "no notifier credentials here",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "no credentials there",
        {"queue_information": QueueInformation(True, False, None, 0, None)},
        Subject.CREDENTIALS,
        "SMP router has no notifier credentials",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    ("no row", {"row": None}, Subject.SUBSCRIPTION, "no subscription", Repair.RECREATE_SUBSCRIPTION),
    (
        "given up",
        {"row": replace(ROW, action=None)},
        Subject.SUBSCRIPTION,
        "gave up",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "under way",
        {"row": replace(ROW, action=NextAction.SUBSCRIBE, subscription_id=None, due_at=None)},
        Subject.SUBSCRIPTION,
        "due now",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "former token",
        {"row": replace(ROW, token_id=b"f" * 24)},
        Subject.SUBSCRIPTION,
        "former token",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "other NTF router",
        {"row": replace(ROW, ntf_router=OTHER_NTF)},
        Subject.SUBSCRIPTION,
        "another NTF router",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "other credentials",
        {"row": replace(ROW, notifier_id=b"o" * 24)},
        Subject.SUBSCRIPTION,
        "other credentials",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "unknown there",
        {"subscription_status": AUTH},
        Subject.SUBSCRIPTION,
        "does not know the subscription",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    (
        "error of the SMP router",
        {"subscription_status": SubscriptionFailed("BLOCKED")},
        Subject.SUBSCRIPTION,
        "BLOCKED",
        Repair.RECREATE_SUBSCRIPTION,
    ),
    *(
        (
            state.value,
            {"subscription_status": state},
            Subject.SUBSCRIPTION,
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
    _name: str, changes: dict[str, Any], subject: Subject, says: str, repair: Repair | None
) -> None:
    finding = findings(**changes)[subject]
    assert finding.verdict is Verdict.WRONG
    assert says in finding.text
    assert finding.next_step
    assert finding.repair is repair


UNKNOWN: list[tuple[dict[str, Any], Subject, str]] = [
    ({"token_status": None, "ntf_router": DOWN}, Subject.TOKEN_AT_ROUTER, "could not be reached"),
    ({"token_status": ResponseTimeout("no answer")}, Subject.TOKEN_AT_ROUTER, "no answer"),
    ({"token": agent_token(token_id=None)}, Subject.TOKEN_AT_ROUTER, "no registered token"),
    ({"token_status": None}, Subject.PROVIDER, "Only the NTF router"),
    ({"token_status": status(TokenState.CONFIRMED)}, Subject.PROVIDER, "accepted the verification"),
    ({"token_status": status(TokenState.REGISTERED)}, Subject.PROVIDER, "not accepted"),
    ({"token_status": status(TokenState.EXPIRED)}, Subject.PROVIDER, "not used for long"),
    ({"token": None, "ntf_router": None}, Subject.NTF_ROUTER, "no token"),
    ({"queue": None, "smp_router": None}, Subject.SMP_ROUTER, "no queue"),
    ({"queue": None, "queue_information": None}, Subject.CREDENTIALS, "no queue"),
    ({"queue_information": None, "smp_router": DOWN}, Subject.CREDENTIALS, "could not be reached"),
    ({"subscription_status": None}, Subject.SUBSCRIPTION, "At the last check it said NEW"),
    ({"subscription_status": SubscriptionState.PENDING}, Subject.SUBSCRIPTION, "PENDING"),
    ({"subscription_status": SubscriptionState.INACTIVE}, Subject.SUBSCRIPTION, "INACTIVE"),
    ({"connection": AgentConnection(NAME, False)}, Subject.SUBSCRIPTION, "from before"),
]


@pytest.mark.parametrize(("changes", "subject", "says"), UNKNOWN)
def test_what_cannot_be_told_is_not_called_wrong(
    changes: dict[str, Any], subject: Subject, says: str
) -> None:
    finding = findings(**changes)[subject]
    assert finding.verdict is Verdict.UNKNOWN
    assert says in finding.text
    assert finding.repair is None


@pytest.mark.parametrize("reason", [None, *InvalidReason])
def test_every_reason_of_the_provider_is_explained(reason: InvalidReason | None) -> None:
    finding = findings(token_status=status(TokenState.INVALID, reason))[Subject.PROVIDER]
    assert finding.verdict is Verdict.WRONG
    assert "refused the device token" in finding.text


def test_every_state_of_a_subscription_has_words() -> None:
    for state in SubscriptionState:
        assert f"({state})" in findings(subscription_status=state)[Subject.SUBSCRIPTION].text


def test_a_muted_connection_is_not_asked_for_credentials() -> None:
    found = findings(
        connection=AgentConnection(NAME, False),
        queue=replace(QUEUE, notifier=None),
        queue_information=QueueInformation(True, False, None, 0, None),
        row=None,
    )
    assert found[Subject.CREDENTIALS].verdict is Verdict.OK
    assert found[Subject.SUBSCRIPTION].verdict is Verdict.OK
    assert repairs(found.values()) == []


def test_the_token_is_repaired_first_because_subscriptions_follow_it() -> None:
    found = diagnosis(replace(HEALTHY, token_status=AUTH, row=None))
    assert {each.repair for each in found} > {Repair.REGISTER_TOKEN, Repair.RECREATE_SUBSCRIPTION}
    assert repairs(found) == [Repair.REGISTER_TOKEN]


def test_findings_tell_no_secrets() -> None:
    token: AgentToken = agent_token(action=Verify(b"secret code"))
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
        (PacketFate.ACCEPTED, Verdict.OK, "The NTF router has the queue"),
        (PacketFate.PENDING, Verdict.UNKNOWN, "has not reached the NTF router yet"),
        (PacketFate.BAD_TOKEN, Verdict.WRONG, "did not take the packet: bad token"),
        (RouterRefused(CommandFault.PROHIBITED), Verdict.WRONG, "does not know of a packet"),
        (DOWN, Verdict.UNKNOWN, "did not tell: no connection"),
        (None, Verdict.UNKNOWN, "does not know direct notifications now"),
    ],
)
def test_packet_is_what_a_direct_subscription_is_judged_by(
    fate: PacketFate | TocsinError | None, verdict: Verdict, says: str
) -> None:
    found = findings(**DIRECT, packet_fate=fate)[Subject.SUBSCRIPTION]
    assert found.verdict is verdict
    assert says in found.text
    assert (found.repair is Repair.RECREATE_SUBSCRIPTION) is (verdict is Verdict.WRONG)


def test_packet_that_waits_is_nothing_to_repair() -> None:
    row = replace(DIRECT["row"], subscription_id=None)
    found = findings(**{**DIRECT, "row": row}, packet_fate=PacketFate.PENDING)[Subject.SUBSCRIPTION]
    assert (found.verdict, found.repair) == (Verdict.UNKNOWN, None)


def test_mentions_only_is_told() -> None:
    connection = AgentConnection(NAME, minimum=MinimumPriority.PRIORITY)
    found = findings(connection=connection)[Subject.CONNECTION]
    assert found.verdict is Verdict.OK
    assert "mentions and replies only" in found.text
