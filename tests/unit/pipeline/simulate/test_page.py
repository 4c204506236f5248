from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

from tests.unit.pipeline.report.sections.test_page import Elements, words
from tests.unit.pipeline.simulate.test_demand import POPULATION, SUMS
from tocsin.pipeline.simulate.costs import COSTS
from tocsin.pipeline.simulate.demand import Demand, SimulatedProtocol, demand
from tocsin.pipeline.simulate.page import demand_csv, simulation_page


def group(tokens: int, error: float = 0.0) -> list[Demand]:
    sums = replace(SUMS, tokens=tokens, queues=50.0 * tokens, subscribed=40.0 * tokens, error=error)
    sums = replace(sums, drawn=min(tokens, 100_000))
    return [demand(POPULATION, sums, protocol) for protocol in SimulatedProtocol]


OWN = group(1_000)
SCALING = [group(tokens) for tokens in (200, 2_000, 200_000, 20_000_000)]


def test_page_is_well_formed_self_contained_and_has_a_table_for_each_plot() -> None:
    page = simulation_page(POPULATION, OWN, SCALING)
    elements = Elements(page).all
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert not re.search(r"https?:|url\(|@import|<script|src=", page)
    for part in re.findall("<section.*?</section>", page):
        assert "<table" in part


def test_page_says_what_was_assumed_and_from_where() -> None:
    page = words(simulation_page(POPULATION, OWN, SCALING))
    for cost in COSTS.values():
        assert cost.source in page
    assert "share of queues without notifications" in page
    assert "not from measurements" in page


def test_sampling_error_is_shown_if_there_is_one() -> None:
    assert "Every device of this population was drawn." in words(simulation_page(POPULATION, OWN, SCALING))
    sampled = words(simulation_page(POPULATION, group(1_000, 0.0123), SCALING))
    assert "within 1.23% of the true value" in sampled
    assert "± 1.2%" in sampled
    assert "scaled ×200.0 from 100,000 devices" in sampled


def test_csv_has_a_row_for_each_population_and_protocol() -> None:
    rows = list(csv.DictReader(io.StringIO(demand_csv([OWN, *SCALING]))))
    assert len(rows) == 3 * (1 + len(SCALING))
    assert [row["protocol"] for row in rows[:3]] == [str(protocol) for protocol in SimulatedProtocol]
    assert float(rows[0]["queues"]) == 50_000
    assert float(rows[-3]["reconnect_commands"]) == 80_000_000
