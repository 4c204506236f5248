from __future__ import annotations

from dataclasses import replace

from tests.unit.pipeline.report.sample_figures import LEG, PERIOD, STAGE_COUNTS, SUMS
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.report.changes import ReportedChange, changes, differs
from tocsin.pipeline.report.figures import DeliveryAccount, OutcomeCount, ReportPeriod


def against(before: ReportPeriod, now: ReportPeriod = PERIOD) -> tuple[ReportedChange, ...]:
    return changes(now, before)


def accounting(**values: int) -> ReportPeriod:
    return replace(PERIOD, accounting=replace(SUMS, **values))


def test_two_equal_weeks_have_nothing_to_say() -> None:
    assert against(PERIOD) == ()


def test_volume_is_neither_good_nor_bad() -> None:
    stages = {**STAGE_COUNTS, Stage.SENT: 20_080, Stage.RECEIVED: 20_000}
    outcomes = (OutcomeCount("failed", "token_invalid", 500),)
    [change] = against(replace(PERIOD, stages=stages, accounting=doubled(), outcomes=outcomes))
    assert change.text == "50% fewer notifications were received: 10,000, was 20,000."
    assert change.better is None


def doubled() -> DeliveryAccount:
    return DeliveryAccount(**{name: 2 * getattr(SUMS, name) for name in DeliveryAccount.__dataclass_fields__})


def test_shares_that_moved_come_with_both_values_and_the_worse_first() -> None:
    found = against(accounting(accepted=8_730, failed=20))
    assert [change.better for change in found] == [False, False]
    assert "fell from" in found[0].text
    assert "The share that failed rose from" in found[1].text


def test_shares_that_improved_are_better() -> None:
    found = against(accounting(accepted=8_000, failed=750))
    assert {change.better for change in found} == {True}


def test_what_chance_explains_is_left_out() -> None:
    assert not differs(3, 1_000, 1, 1_000)
    assert differs(300, 10_000, 100, 10_000)


def test_certain_but_tiny_differences_are_left_out() -> None:
    assert not differs(1_000_500, 10**9, 1_000_000, 10**9)


def test_shares_of_nothing_do_not_differ() -> None:
    assert not differs(0, 0, 1, 10)
    assert not differs(5, 5, 5, 5)


def test_slower_and_faster_legs_are_one_sentence_each() -> None:
    quick = replace(LEG, us=tuple(value // 2 for value in LEG.us))
    [slower] = against(replace(PERIOD, spans=(quick,)))
    assert slower.better is False
    assert slower.text.startswith("Slower: “SMP router to provider”, median 82")
    assert "p99" in slower.text
    [faster] = against(PERIOD, replace(PERIOD, spans=(quick,)))
    assert faster.better is True


def test_legs_that_are_a_little_slower_are_left_out() -> None:
    assert (
        against(replace(PERIOD, spans=(replace(LEG, us=tuple(value * 9 // 10 for value in LEG.us)),))) == ()
    )


def test_legs_of_few_or_of_one_week_only_are_not_compared() -> None:
    few = replace(LEG, n=20, us=tuple(value * 9 for value in LEG.us))
    assert against(replace(PERIOD, spans=(few,))) == ()
    assert against(replace(PERIOD, spans=())) == ()


def test_new_and_rarer_reasons_are_named() -> None:
    before = replace(PERIOD, outcomes=(OutcomeCount("failed", "expired", 250),))
    more, fewer = against(before)
    assert more.text == "More failures with reason token_invalid (250, new)."
    assert fewer.text == "Fewer failures with reason expired (0, was 250)."
    [often] = against(replace(PERIOD, outcomes=(OutcomeCount("failed", "token_invalid", 100),)))
    assert often.text == "More failures with reason token_invalid (250, 2.5 times as often)."


def test_losses_between_the_routers_are_seen() -> None:
    now = replace(PERIOD, stages={**STAGE_COUNTS, Stage.RECEIVED: 9_000, Stage.SENT: 10_040})
    [change] = changes(now, PERIOD)
    assert change.better is False
    assert "sent by SMP routers but never received" in change.text


def test_superseded_share_is_neither_good_nor_bad() -> None:
    found = against(accounting(superseded=600, accepted=9_080, failed=268))
    assert any(
        change.better is None and "superseded by a newer notification rose" in change.text for change in found
    )


def test_an_accounting_that_stops_or_begins_to_add_up_is_said() -> None:
    broken = accounting(difference=3)
    assert against(PERIOD, broken)[0] == ReportedChange(
        "The accounting no longer adds up: difference 3.", False
    )
    assert against(broken)[-1] == ReportedChange("The accounting adds up again.", True)


def test_a_week_without_anything_before_it_gives_nothing() -> None:
    nothing = ReportPeriod(PERIOD.days, DeliveryAccount(), dict.fromkeys(STAGE_COUNTS, 0))
    assert changes(nothing, nothing) == ()
