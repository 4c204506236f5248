"""Options of jobs become settings of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.spark.session import options_of

UI = "spark.ui.enabled"


@pytest.mark.parametrize("master", [None, "local[2]", "local-cluster[1,1,1024]"])
def test_a_job_that_runs_for_long_shows_sparks_page_on_loopback(tmp_path: Path, master: str | None) -> None:
    options = options_of(JobOptions(tmp_path, master).spark("run", ui=True))
    assert options[UI] == "true"
    assert options["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_page_on_a_cluster_or_of_a_short_job_must_be_asked_for(tmp_path: Path) -> None:
    assert options_of(JobOptions(tmp_path, "spark://host:7077").spark("run", ui=True))[UI] == "false"
    assert options_of(JobOptions(tmp_path).spark("build"))[UI] == "false"
    asked = JobOptions(tmp_path, spark_options={UI: "true"})
    assert options_of(asked.spark("build"))[UI] == "true"


def test_spark_submit_decides_about_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Java runs already, and would open the page to the network."""
    submitted = {"spark.master": "spark://host:7077"}
    monkeypatch.setattr("tocsin.pipeline.jobs.options.submitted_options", lambda: submitted)
    assert options_of(JobOptions(tmp_path).spark("run", ui=True))[UI] == "false"
