"""`tocsin pipeline explain`: what happened to a notification, a queue's or a token's notifications."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console

from tocsin.errors import ConfigError
from tocsin.pipeline.explain.answers import ExplainedNotification, as_json, explain_found, show
from tocsin.pipeline.explain.lookup import look_up
from tocsin.pipeline.explain.question import ExplainOptions, question
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.progress import step
from tocsin.pipeline.lake.lake import existing_lake
from tocsin.pipeline.spark.session import spark_session


def run_explain(options: JobOptions, asked: ExplainOptions, *, most: int) -> Sequence[ExplainedNotification]:
    """Raises ConfigError for what cannot be asked, StoreError if nothing is known of it."""
    if most < 1:
        raise ConfigError(f"--last {most}: at least 1")
    wanted = question(asked, now=datetime.now(UTC))
    lake = existing_lake(options.lake)
    with spark_session(options.spark("explain", short=True)) as spark, step(spark, "looking it up"):
        found = look_up(spark, lake, wanted)
    answers = explain_found(found)
    if options.as_json:
        json.dump(as_json(found, answers), sys.stdout)
        sys.stdout.write("\n")
    else:
        show(Console(), found, answers, most)
    return answers
