"""Every stage at which a notification can stop has an explanation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.pipeline.sample_events import MIDNIGHT, NOON, PERIOD
from tocsin.events.delivery_events import ENDS, Stage
from tocsin.pipeline.explain.chains import Chain, StageStep, StatusChange
from tocsin.pipeline.explain.explanation import NOTHING, DeliveryVerdict, Explanation, explanation
from tocsin.pipeline.report.failure_reasons import ADVICE
from tocsin.pipeline.schemas.notifications import STAGES

SMP = (Stage.ENQUEUED, Stage.SENT)
NTF = (*SMP, Stage.RECEIVED)
TRIED = (*NTF, Stage.ATTEMPTED)


def chain(*stages: Stage, at: int = NOON, reason: str = "") -> Chain:
    steps = tuple(
        StageStep(
            stage,
            at + 1_000 * number,
            "r",
            1 if stage is Stage.ATTEMPTED else 0,
            reason if stage in ENDS else "",
        )
        for number, stage in enumerate(stages)
    )
    return Chain(PERIOD, (at, 0), 7, "smp1.example", "apns_prod", steps=steps)


def change(of: Stage, after: str, at: int = NOON - 60_000_000) -> StatusChange:
    return StatusChange(of, at, "ntf-1", "", after, "router", 7)


STOPS = [
    ((Stage.ENQUEUED,), DeliveryVerdict.WAITING, "no NTF router is subscribed"),
    ((Stage.ENQUEUED, Stage.EXPIRED), DeliveryVerdict.LOST, "no NTF router subscribed in time"),
    ((Stage.ENQUEUED, Stage.DROPPED), DeliveryVerdict.LOST, "too many were waiting"),
    (SMP, DeliveryVerdict.LOST, "no event says that an NTF router received it"),
    ((*SMP, Stage.UNKNOWN_QUEUE), DeliveryVerdict.LOST, "has no subscription for its queue"),
    (NTF, DeliveryVerdict.WAITING, "has not tried to push it"),
    ((*NTF, Stage.SUPERSEDED), DeliveryVerdict.REPLACED, "newer notification"),
    ((*NTF, Stage.BATCHED), DeliveryVerdict.WAITING, "handed over to the delivery engine"),
    (TRIED, DeliveryVerdict.WAITING, "tried to push it once"),
    ((*TRIED, Stage.FAILED), DeliveryVerdict.LOST, "gave up without recording a reason"),
    ((*NTF, Stage.SHED), DeliveryVerdict.LOST, "overloaded"),
    ((*TRIED, Stage.ACCEPTED), DeliveryVerdict.ARRIVED, "The provider accepted the push"),
    ((*TRIED, Stage.ACCEPTED, Stage.WOKEN), DeliveryVerdict.ARRIVED, "did not report that it fetched"),
    ((*TRIED, Stage.ACCEPTED, Stage.WOKEN, Stage.FETCHED), DeliveryVerdict.ARRIVED, "fetched the message"),
]


@pytest.mark.parametrize(("stages", "verdict", "means"), STOPS)
def test_the_last_stage_decides(stages: tuple[Stage, ...], verdict: DeliveryVerdict, means: str) -> None:
    found = explanation(chain(*stages))
    assert (found.stopped_at, found.verdict) == (stages[-1], verdict)
    assert means in found.means
    assert found.to_do


def test_every_stage_of_a_notification_is_explained_somewhere() -> None:
    assert {stages[-1] for stages, *_ in STOPS} == set(STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_any_single_stage_has_an_explanation(stage: Stage) -> None:
    assert isinstance(explanation(chain(stage)), Explanation)


def test_nothing_cannot_be_explained() -> None:
    with pytest.raises(ValueError, match="without steps has no explanation"):
        explanation(chain())


def test_changes_are_no_stages_of_a_notification() -> None:
    with pytest.raises(ValueError, match="is not a stage"):
        explanation(chain(Stage.TOKEN_CHANGED))


@pytest.mark.parametrize("reason", [*ADVICE, "503", "SomethingNew"])
def test_failures_are_explained_by_their_reason(reason: str) -> None:
    found = explanation(chain(*TRIED, Stage.FAILED, reason=reason))
    assert f"“{reason}”" in found.means
    assert found.to_do


def test_failure_of_an_invalid_token_tells_when_it_became_so() -> None:
    changes = [change(Stage.TOKEN_CHANGED, "ACTIVE"), change(Stage.TOKEN_CHANGED, "INVALID,BAD", NOON)]
    found = explanation(chain(*TRIED, Stage.FAILED, reason="token_invalid"), changes=changes)
    assert "The token became INVALID,BAD at 12:00:00.000 UTC." in found.means
    other = explanation(chain(*TRIED, Stage.FAILED, reason="token_invalid"), changes=changes[:1])
    assert "The token became" not in other.means


@pytest.mark.parametrize(
    "stages", [(Stage.ENQUEUED,), (Stage.ENQUEUED, Stage.EXPIRED), SMP, (*SMP, Stage.UNKNOWN_QUEUE)]
)
def test_what_the_ntf_router_missed_comes_with_its_subscription_then(stages: tuple[Stage, ...]) -> None:
    changes = [
        change(Stage.SUBSCRIPTION_CHANGED, "ACTIVE", NOON - 2),
        change(Stage.SUBSCRIPTION_CHANGED, "INACTIVE", NOON - 1),
        change(Stage.SUBSCRIPTION_CHANGED, "ACTIVE", NOON + 60_000_000),
    ]
    assert (
        "subscription was INACTIVE since 11:59:59.999 UTC"
        in explanation(chain(*stages), changes=changes).means
    )
    deleted = [change(Stage.SUBSCRIPTION_CHANGED, "")]
    assert "subscription was deleted since" in explanation(chain(*stages), changes=deleted).means


def test_sent_just_before_midnight_may_go_on_under_other_pseudonyms() -> None:
    late = chain(*SMP, at=MIDNIGHT + 86_400_000_000 - 2_000_000)
    found = explanation(late)
    assert found.verdict is DeliveryVerdict.WAITING
    assert "next day's pseudonyms" in found.means


def test_attempts_are_counted() -> None:
    tried = chain(*TRIED)
    twice = replace(tried, steps=(*tried.steps, StageStep(Stage.ATTEMPTED, NOON + 99_000, "r", 2)))
    assert "tried to push it 2 times" in explanation(twice).means


def test_superseded_by_one_that_arrived_is_fine() -> None:
    old = chain(*NTF, Stage.SUPERSEDED)
    found = explanation(old, newer=chain(*TRIED, Stage.ACCEPTED, at=NOON + 5_000_000))
    assert (found.verdict, found.to_do) == (DeliveryVerdict.REPLACED, NOTHING)
    assert "is that of 12:00:05.000 UTC, which was accepted" in found.means


def test_superseded_by_one_that_was_lost_or_waits_is_lost_or_waits() -> None:
    old = chain(*NTF, Stage.SUPERSEDED)
    lost = explanation(old, newer=chain(*TRIED, Stage.FAILED, reason="expired"))
    assert (lost.stopped_at, lost.verdict) == (Stage.SUPERSEDED, DeliveryVerdict.LOST)
    assert "which stopped at “failed”" in lost.means
    assert explanation(old, newer=chain(*NTF)).verdict is DeliveryVerdict.WAITING


def test_superseded_by_one_that_was_itself_replaced_or_is_unknown() -> None:
    old = chain(*NTF, Stage.SUPERSEDED)
    assert "which was replaced as well" in explanation(old, newer=chain(*NTF, Stage.SUPERSEDED)).means
    assert "not in the tables" in explanation(old).means


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((Stage.ACCEPTED, Stage.FAILED), DeliveryVerdict.ARRIVED),
        ((Stage.FAILED, Stage.SHED), DeliveryVerdict.LOST),
    ],
)
def test_two_ends_are_a_bug(ends: tuple[Stage, ...], verdict: DeliveryVerdict) -> None:
    found = explanation(chain(*NTF, *ends))
    assert found.verdict is verdict
    assert "This is a bug" in found.means


def test_an_end_without_a_reception_is_said_to_be_a_difference() -> None:
    found = explanation(chain(Stage.ATTEMPTED, Stage.ACCEPTED))
    assert found.verdict is DeliveryVerdict.ARRIVED
    assert "No event says that the NTF router received it" in found.means


def test_clocks_that_disagree_do_not_change_the_verdict() -> None:
    steps = (
        StageStep(Stage.SENT, NOON + 9_000_000),
        StageStep(Stage.RECEIVED, NOON),
        StageStep(Stage.ACCEPTED, NOON + 10),
    )
    assert explanation(Chain(PERIOD, (1, 2), steps=steps)).stopped_at is Stage.ACCEPTED
