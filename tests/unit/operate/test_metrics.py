"""The text that Prometheus reads."""

from __future__ import annotations

import pytest

from tocsin.operate.metrics import (
    Metric,
    MetricKind,
    Sample,
    by_label,
    counters_of,
    exposition,
    gauge,
    histogram,
    totals,
)
from tocsin.smp_router.statistics.counters import SmpCounters


def test_counters_have_help_type_and_value() -> None:
    counters = SmpCounters()
    counters.messages_sent += 3
    text = exposition(counters_of(counters, "smp"))
    assert (
        "# HELP smp_messages_sent_total Messages accepted by SEND.\n"
        "# TYPE smp_messages_sent_total counter\n"
        "smp_messages_sent_total 3\n"
    ) in text
    assert text.count("# TYPE ") == len(list(totals(counters)))


def test_gauges_come_with_labels_and_escapes() -> None:
    metric = Metric(
        "smp_queues",
        MetricKind.GAUGE,
        "a\\b\nc",
        (Sample(1, {"mode": 'x"\\\n', "b": ""}), Sample(2.5)),
    )
    assert exposition([metric]) == (
        "# HELP smp_queues a\\\\b\\nc\n"
        "# TYPE smp_queues gauge\n"
        'smp_queues{mode="x\\"\\\\\\n",b=""} 1\n'
        "smp_queues 2.5\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (True, "1"),
        (False, "0"),
        (1 << 70, str(1 << 70)),
        (0.1, "0.1"),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert exposition([gauge("x", "About.", value)]).endswith(f"\nx {text}\n")


def test_nothing_is_an_empty_text() -> None:
    assert exposition([]) == ""


def test_names_prometheus_does_not_take_are_refused() -> None:
    with pytest.raises(ValueError, match="not a metric name"):
        gauge("smp-queues", "", 1)
    with pytest.raises(ValueError, match="not a label name"):
        Metric("x", MetricKind.GAUGE, "", (Sample(1, {"__x": ""}),))
    with pytest.raises(ValueError, match="two metrics with the name x"):
        exposition([gauge("x", "", 1), gauge("x", "", 2)])


def test_a_histogram_counts_upwards_and_ends_with_everything() -> None:
    metric = histogram("took_seconds", "How long.", (0.1, 1.0), [2, 0, 1], 5.5)
    assert exposition([metric]).splitlines() == [
        "# HELP took_seconds How long.",
        "# TYPE took_seconds histogram",
        'took_seconds_bucket{le="0.1"} 2',
        'took_seconds_bucket{le="1.0"} 2',
        'took_seconds_bucket{le="+Inf"} 3',
        "took_seconds_sum 5.5",
        "took_seconds_count 3",
    ]


def test_samples_may_have_a_time() -> None:
    metrics = [by_label(MetricKind.COUNTER, "seen", "Seen.", "server", {"b": 2, "a": 1})]
    assert exposition(metrics, at=1.5).splitlines()[2:] == [
        'seen{server="a"} 1 1500',
        'seen{server="b"} 2 1500',
    ]
