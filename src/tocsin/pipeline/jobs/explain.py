"""`tocsin pipeline explain`: the path of a notification, or of the notifications of a queue or token."""

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
from tocsin.pipeline.spark.session import spark_session


def run_explain(
    options: JobOptions, question_options: ExplainOptions, *, most: int
) -> Sequence[ExplainedNotification]:
    """Raises ConfigError for an invalid question, StoreError if the lake has no such events."""
    if most < 1:
        raise ConfigError(f"--last {most}: must be at least 1")
    wanted = question(question_options, now=datetime.now(UTC))
    lake = options.existing_lake()
    with spark_session(options.spark("explain", short=True)) as spark, step(spark, "looking up events"):
        found = look_up(spark, lake, wanted)
    answers = explain_found(found)
    if options.as_json:
        json.dump(as_json(found, answers), sys.stdout)
        sys.stdout.write("\n")
    else:
        show(Console(), found, answers, most)
    return answers
