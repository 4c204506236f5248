"""The text that Prometheus reads: pure functions from counters and gauges.

Format: Prometheus text exposition 0.0.4, https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tocsin.observability.smp_counters import SmpCounters, totals

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number, told apart from others of its metric by labels."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metric:
    """Raises ValueError for names that Prometheus does not take."""

    name: str
    kind: MetricKind
    about: str
    samples: tuple[Sample, ...]

    def __post_init__(self) -> None:
        if not _METRIC_NAME.fullmatch(self.name):
            raise ValueError(f"not a metric name: {self.name!r}")
        for label in {label for sample in self.samples for label in sample.labels}:
            if not _LABEL_NAME.fullmatch(label):
                raise ValueError(f"not a label name: {label!r}")


def gauge(name: str, about: str, value: float) -> Metric:
    """A number as it is now."""
    return Metric(name, MetricKind.GAUGE, about, (Sample(value),))


def counters_of(counters: SmpCounters, prefix: str) -> Iterator[Metric]:
    """One metric for each field; its help text is what `counted` was told."""
    for each in totals(counters):
        yield Metric(f"{prefix}_{each.name}_total", MetricKind.COUNTER, each.about, (Sample(each.value),))


def exposition(metrics: Iterable[Metric]) -> str:
    """Raises ValueError if two metrics have one name."""
    seen: set[str] = set()
    lines: list[str] = []
    for metric in metrics:
        if metric.name in seen:
            raise ValueError(f"two metrics with the name {metric.name}")
        seen.add(metric.name)
        lines.append(f"# HELP {metric.name} {_escape(metric.about)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines += [f"{metric.name}{_labels(sample)} {_number(sample.value)}" for sample in metric.samples]
    return "".join(f"{line}\n" for line in lines)


def _labels(sample: Sample) -> str:
    if not sample.labels:
        return ""
    pairs = (f'{name}="{_escape_label(value)}"' for name, value in sample.labels.items())
    return "{" + ",".join(pairs) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_label(text: str) -> str:
    return _escape(text).replace('"', '\\"')


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
