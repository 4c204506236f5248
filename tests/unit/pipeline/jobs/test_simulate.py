from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tocsin.cli.pipeline import simulate as simulate_command
from tocsin.errors import ConfigError
from tocsin.pipeline.jobs.options import JobOptions
from tocsin.pipeline.jobs.simulate import PAGE, SimulateOptions, run_simulate
from tocsin.pipeline.simulate.demand import SimulatedProtocol
from tocsin.pipeline.simulate.page import how_exact
from tocsin.pipeline.simulate.population import Population
from tocsin.pipeline.simulate.simulated_tokens import simulated


def test_small_populations_are_whole_and_large_ones_are_weighted_with_an_error(spark: SparkSession) -> None:
    population = Population()
    small, large, huge = simulated(spark, population, [300, 5_000, 10**9], rows=1_000)
    assert small.error == 0
    assert 0 < large.error < huge.error < 0.5
    assert huge.tokens == 10**9
    assert huge.queues == pytest.approx(10**9 / 5_000 * large.queues)
    assert huge.queues == pytest.approx(10**9 * population.queues_per_token, rel=0.2)


def test_the_truth_lies_within_the_error_that_is_shown(spark: SparkSession) -> None:
    [truth] = simulated(spark, Population(), [20_000], rows=20_000)
    [sample] = simulated(spark, Population(), [20_000], rows=2_000)
    assert abs(sample.pushes / truth.pushes - 1) < 2 * sample.error


def test_the_error_that_is_stated_holds_in_most_samples(spark: SparkSession) -> None:
    """95 of 100 samples should be within it: of 20 with different seeds, two may be outside, and one far outside."""
    off = []
    for seed in range(20):
        population = Population(seed=seed)
        [truth] = simulated(spark, population, [6_000], rows=6_000)
        [sample] = simulated(spark, population, [6_000], rows=600)
        off.append(abs(sample.pushes / truth.pushes - 1) / sample.error)
    assert sum(each > 1 for each in off) <= 3, sorted(off)
    assert max(off) < 2.5, sorted(off)


def test_the_output_says_what_is_scaled_and_how_exact_it_is(spark: SparkSession) -> None:
    whole, scaled = simulated(spark, Population(), [500, 10_000], rows=500)
    assert how_exact(whole) == "exact: 500 devices drawn one by one"
    assert (
        how_exact(scaled)
        == f"scaled ×20.0 from 500 devices, pushes ± {scaled.error:.2%} in 95 of 100 samples"
    )


def test_a_billion_queues_are_rows_unless_another_number_is_chosen() -> None:
    assert 10**9 / Population().queues_per_token < SimulateOptions(Path()).rows
    parser = argparse.ArgumentParser()
    simulate_command.add_arguments(parser)
    assert parser.parse_args([]).rows == SimulateOptions(Path()).rows


def test_job_writes_page_and_table_and_says_the_figures(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.pipeline.jobs.simulate.spark_session", lambda _: nullcontext(spark))
    options = JobOptions(tmp_path / "no-lake", as_json=True)
    for _ in range(2):
        own = run_simulate(options, Population(tokens=500), SimulateOptions(tmp_path / "out", rows=500))
    assert [each.protocol for each in own] == list(SimulatedProtocol)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["population.json", "simulation.csv", PAGE]
    assert not (tmp_path / "no-lake").exists()
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["largest_is"].startswith("scaled ×")
    assert said["largest_is"] in (tmp_path / "out" / PAGE).read_text()
    assert said["nsub_commands_a_day"] > said["nsubs_commands_a_day"] > said["direct_commands_a_day"]
    assert json.loads((tmp_path / "out" / "population.json").read_text())["tokens"] == 500


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--rows 5: must be at least 100"):
        SimulateOptions(tmp_path, rows=5)


def test_command_line_passes_parameters_on() -> None:
    parser = argparse.ArgumentParser()
    simulate_command.add_arguments(parser)
    options = parser.parse_args(["--tokens", "5", "--group-size", "7.5", "--population", "p.toml"])
    assert (options.tokens, options.group_size, options.population) == (5, 7.5, Path("p.toml"))
    assert options.muted is None
