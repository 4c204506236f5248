"""The committed page of capacity is what its tool makes, and the tool divides as it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.capacity import PAGE, SOURCE, Site, need_of, needs_of, page, rows_of

ROWS = rows_of(SOURCE)


def test_committed_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(ROWS), "run `python -m tools.capacity`"


def test_each_size_is_shown_under_every_protocol() -> None:
    sizes = needs_of(ROWS, Site())
    assert [round(needs[0].queues / 1e6) for needs in sizes] == [1, 100, 1000]
    for needs in sizes:
        assert [need.protocol.split()[0] for need in needs] == ["NSUB", "NSUBS", "direct"]


def test_a_busier_hour_needs_more_cores_and_no_more_traffic_in_a_month() -> None:
    row = max(ROWS, key=lambda each: float(each["queues"]))
    usual, busy = need_of(row, Site()), need_of(row, Site(peak=6.0))
    assert busy.cores == pytest.approx(2 * usual.cores)
    assert busy.pushes_a_second == pytest.approx(2 * usual.pushes_a_second)
    assert busy.terabytes_a_month == usual.terabytes_a_month
    assert busy.machines > usual.machines


def test_prices_are_those_of_machines_and_traffic() -> None:
    site = Site(machine_price=0.0, traffic_price=2.0)
    for row in ROWS:
        need = need_of(row, site)
        assert need.price == pytest.approx(2 * need.terabytes_a_month)
        assert need_of(row, replace(site, machine_price=5.0)).price == pytest.approx(
            need.price + 5 * need.machines
        )
