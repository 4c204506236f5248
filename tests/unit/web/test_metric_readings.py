"""A router's metrics, parsed back into numbers."""

from __future__ import annotations

from tests.unit.web.test_operate_view import NTF
from tocsin.web.metric_readings import MetricReadings, Quantiles


def test_an_exposition_is_parsed_back() -> None:
    assert NTF.total("simplex_ntf_accounting_failed") == 3
    assert NTF.by_label("simplex_ntf_accounting_failed", "reason") == {"expired": 1, 'a \\"b\\"': 2}
    assert NTF.total("simplex_ntf_nothing") is None
    assert NTF.totals("simplex_ntf_nothing", "simplex_ntf_accounting_received") == 20
    assert NTF.totals("simplex_ntf_nothing") is None


def test_quantiles_are_upper_bounds_limited_to_the_last_finite_one() -> None:
    assert NTF.quantiles("simplex_ntf_store_seconds") == Quantiles(100, 0.01, 0.1, 1.0)
    assert NTF.quantiles("simplex_ntf_provider_seconds") is None
    slow = MetricReadings.parse('x_bucket{le="1.0"} 0\nx_bucket{le="+Inf"} 2\n')
    assert slow.quantiles("x") == Quantiles(2, 1.0, 1.0, 1.0)
    assert MetricReadings.parse('x_bucket{le="1.0"} 0\nx_bucket{le="+Inf"} 0\n').quantiles("x") is None


def test_lines_that_are_not_samples_are_ignored() -> None:
    assert MetricReadings.parse("# HELP x y\n\nnonsense\nx one\nx 1 1700000000000\n").samples == {
        "x": (({}, 1.0),)
    }
