"""Metrics: totals that routers count, and the text that Prometheus reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number; labels distinguish the samples of a metric."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""
    """Appended to the metric's name, for the series of a histogram."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Raises ValueError for names that Prometheus does not accept."""

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
    """A number that can rise and fall."""
    return Metric(name, MetricKind.GAUGE, about, (Sample(value),))


def counter(name: str, about: str, value: float) -> Metric:
    """A number that only grows."""
    return Metric(name, MetricKind.COUNTER, about, (Sample(value),))


def by_label(kind: MetricKind, name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    """One sample for each value of a label."""
    samples = (Sample(value, {label: each}) for each, value in sorted(values.items()))
    return Metric(name, kind, about, tuple(samples))


def histogram(name: str, about: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Metric:
    """`counts` has the observations between each bound and the one before; the last count is above all bounds."""
    below, buckets = 0, []
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        below += count
        buckets.append(Sample(below, {"le": _number(bound)}, "_bucket"))
    samples = (*buckets, Sample(total, suffix="_sum"), Sample(below, suffix="_count"))
    return Metric(name, MetricKind.HISTOGRAM, about, samples)


def counters_of(counters: Any, prefix: str, suffix: str = "_total") -> Iterator[Metric]:
    """One metric for each field made by `counted`, with its help text."""
    for each in totals(counters):
        yield counter(f"{prefix}_{each.name}{suffix}", each.about, each.value)


def exposition(metrics: Iterable[Metric], at: float | None = None) -> str:
    """The text that Prometheus reads, with a time (seconds since 1970) if one is given.

    Raises ValueError if two metrics have the same name.
    """
    time = "" if at is None else f" {int(at * 1000)}"
    seen: set[str] = set()
    lines: list[str] = []
    for metric in metrics:
        if metric.name in seen:
            raise ValueError(f"two metrics with the name {metric.name}")
        seen.add(metric.name)
        lines.append(f"# HELP {metric.name} {_escape(metric.about)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines += [
            f"{metric.name}{sample.suffix}{_labels(sample)} {_number(sample.value)}{time}"
            for sample in metric.samples
        ]
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
        return str(int(value))  # True is 1
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def counted(about: str) -> int:
    """A total that starts at 0; `about` becomes the help text of its metric."""
    total: int = field(default=0, metadata={"about": about})
    return total


class Total(NamedTuple):
    name: str
    about: str
    value: int


def totals(counters: Any) -> Iterator[Total]:
    """The totals of all fields of a dataclass that `counted` made."""
    for each in fields(counters):
        if "about" in each.metadata:
            yield Total(each.name, each.metadata["about"], getattr(counters, each.name))
