"""Questions asked of a lake of a few notifications."""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from datetime import date
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from tests.unit.pipeline.sample_events import DAY, NOON, PERIOD, event, pseudonym, way, write_events
from tocsin.cli.pipeline import explain as explain_command
from tocsin.errors import ConfigError, StoreError
from tocsin.events.delivery_events import Stage
from tocsin.pipeline.explain.answers import as_json, explain_found, show
from tocsin.pipeline.explain.explanation import DeliveryVerdict
from tocsin.pipeline.explain.lookup import look_up
from tocsin.pipeline.explain.question import ExplainOptions, Question, QuestionSubject
from tocsin.pipeline.jobs.explain import run_explain
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.lake.lake import Lake

MINUTE = 60_000_000
ARRIVED = (
    (Stage.ENQUEUED, 0),
    (Stage.SENT, 500),
    (Stage.RECEIVED, 1_500),
    (Stage.ATTEMPTED, 2_000),
    (Stage.ACCEPTED, 52_000),
)
REPLACED = (*ARRIVED[:3], (Stage.SUPERSEDED, 9_000))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """One device with two queues: replaced, arrived and failed in one, never sent in the other. And somebody else."""
    made = Lake(tmp_path_factory.mktemp("explain") / "lake")
    one = {"token": "t", "provider": "apns_prod", "queue": "q1"}
    events = [
        *way("replaced", 0, *REPLACED, **one),
        *way("arrived", MINUTE, *ARRIVED, **one),
        *way("failed", 2 * MINUTE, *ARRIVED[:4], (Stage.FAILED, 9_000), **one, reason="token_invalid"),
        *way("known", 3 * MINUTE, *ARRIVED, token="t", queue="q2"),
        *way("stuck", 4 * MINUTE, (Stage.ENQUEUED, 0), queue="q2"),
        *way("other", 0, *ARRIVED, token="somebody else", queue="q3"),
        event(Stage.TOKEN_CHANGED, 2 * MINUTE, token="t", to_status="INVALID,BAD"),
        event(Stage.SUBSCRIPTION_CHANGED, 3 * MINUTE + 1, queue="q2", to_status="INACTIVE"),
    ]
    write_events(spark, made, events)
    return made


def ask(
    spark: SparkSession, lake: Lake, subject: QuestionSubject, name: str, **values: object
) -> dict[int, tuple[str, str, str]]:
    """Minute → stage, verdict and meaning."""
    found = look_up(spark, lake, Question(subject, pseudonym(name), DAY, **values))  # type: ignore[arg-type]
    return {
        (each.chain.began_at - NOON) // MINUTE: (
            str(each.explanation.stopped_at),
            str(each.explanation.verdict),
            each.explanation.means,
        )
        for each in explain_found(found)
    }


def test_one_notification_is_told_with_the_one_that_replaced_it(spark: SparkSession, lake: Lake) -> None:
    [(minute, (stage, verdict, means))] = ask(spark, lake, QuestionSubject.NOTIFICATION, "replaced").items()
    assert (minute, stage, verdict) == (0, "superseded", "replaced")
    assert "that of 12:01:00.000 UTC, which was accepted" in means


def test_a_failed_one_knows_when_its_token_became_invalid(spark: SparkSession, lake: Lake) -> None:
    [(_, _, means)] = ask(spark, lake, QuestionSubject.NOTIFICATION, "failed").values()
    assert "The token became INVALID,BAD at 12:02:00.000 UTC" in means


def test_a_queue_has_all_its_notifications_in_order(spark: SparkSession, lake: Lake) -> None:
    found = ask(spark, lake, QuestionSubject.QUEUE, "q1")
    assert [(minute, stage) for minute, (stage, *_) in found.items()] == [
        (0, "superseded"),
        (1, "accepted"),
        (2, "failed"),
    ]


def test_a_token_has_also_what_only_the_smp_router_knows(spark: SparkSession, lake: Lake) -> None:
    found = ask(spark, lake, QuestionSubject.TOKEN, "t")
    assert list(found) == [0, 1, 2, 3, 4]
    stage, verdict, means = found[4]
    assert (stage, verdict) == ("enqueued", "waiting")
    assert "subscription was INACTIVE since 12:03:00.000 UTC" in means


def test_only_the_hours_asked_for(spark: SparkSession, lake: Lake) -> None:
    assert list(
        ask(spark, lake, QuestionSubject.TOKEN, "t", since=NOON + MINUTE, until=NOON + 3 * MINUTE)
    ) == [1, 2]


def test_what_is_not_there_says_what_may_be_wrong(
    spark: SparkSession, lake: Lake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(
        StoreError, match="no events of this token on 2026-11-15: a pseudonym is valid for one day only"
    ):
        ask(spark, lake, QuestionSubject.TOKEN, "unknown")
    with pytest.raises(StoreError, match="no events with that day's pseudonyms"):
        look_up(spark, lake, Question(QuestionSubject.TOKEN, pseudonym("t"), date(2026, 11, 3)))
    with pytest.raises(
        StoreError, match=f"the tables have {PERIOD}.*name the folder that the routers use with --keys"
    ):
        ask(spark, lake, QuestionSubject.TOKEN, "t", period="20407-00000000")
    with pytest.raises(StoreError, match="run `tocsin pipeline ingest` if they are new"):
        look_up(spark, lake, Question(QuestionSubject.TOKEN, pseudonym("unknown"), None))
    with pytest.raises(StoreError, match="tocsin pipeline ingest"):
        ask(spark, Lake(tmp_path_factory.mktemp("empty")), QuestionSubject.TOKEN, "t")


def test_a_mistyped_lake_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no lake at"):
        run_explain(JobOptions(tmp_path / "mistyped"), ExplainOptions(queue=pseudonym("q1")), most=5)
    assert list(tmp_path.iterdir()) == []


def test_without_a_day_all_are_looked_through(spark: SparkSession, lake: Lake) -> None:
    assert look_up(spark, lake, Question(QuestionSubject.QUEUE, pseudonym("q3"), None)).period == PERIOD


def test_answers_repeat_no_pseudonyms(spark: SparkSession, lake: Lake) -> None:
    found = look_up(spark, lake, Question(QuestionSubject.TOKEN, pseudonym("t"), DAY))
    out = StringIO()
    show(Console(file=out, width=160), found, explain_found(found), 20)
    said = out.getvalue() + json.dumps(as_json(found, explain_found(found)))
    for name in ("t", "q1", "q2", "replaced", "arrived", "failed", "stuck"):
        assert pseudonym(name) not in said
    assert "The last one that did not arrive" in said
    assert "token to INVALID,BAD" in said


def test_one_way_is_shown_with_times_deltas_and_routers(spark: SparkSession, lake: Lake) -> None:
    found = look_up(spark, lake, Question(QuestionSubject.NOTIFICATION, pseudonym("failed"), DAY))
    out = StringIO()
    show(Console(file=out, width=160), found, explain_found(found), 20)
    for piece in (
        "12:02:00.000",
        "500 µs".replace(" ", "\u00a0"),
        "attempted",
        "attempt 1",
        "ntf-1",
        "smp-1",
        "token_invalid",
        "lost, stopped at “failed”",
        "What to do",
    ):
        assert piece in out.getvalue()


def test_job_prints_json_and_says_whether_something_was_lost(
    spark: SparkSession, lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.pipeline.jobs.explain.spark_session", lambda _: nullcontext(spark))
    answers = run_explain(
        JobOptions(lake.folder, as_json=True), ExplainOptions(queue=pseudonym("q1"), days=(DAY,)), most=5
    )
    assert DeliveryVerdict.LOST in {each.explanation.verdict for each in answers}
    said = json.loads(capsys.readouterr().out)
    assert said["verdicts"] == {"replaced": 1, "arrived": 1, "lost": 1}
    assert said["notifications"][2]["steps"][-1]["reason"] == "token_invalid"
    with pytest.raises(ConfigError, match="--last 0"):
        run_explain(JobOptions(lake.folder), ExplainOptions(queue=pseudonym("q1")), most=0)


def test_command_line_takes_every_way_to_ask() -> None:
    parser = argparse.ArgumentParser()
    explain_command.add_arguments(parser)
    options = parser.parse_args(
        ["--notifier-id", "AAAA", "--nonce", "BBBB", "--keys", "k", "--day", "2026-11-15"]
    )
    assert (options.notifier_id, options.nonce, options.day) == ("AAAA", "BBBB", [DAY])
