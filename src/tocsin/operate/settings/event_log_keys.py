"""Keys of the delivery event log, which both routers write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tocsin.operate.settings.setting_values import PATH, ValueKind, duration, or_off, whole_number

K = TypeVar("K")


def event_log_keys(key: Callable[[str, ValueKind, str], K]) -> tuple[K, ...]:
    """`key` makes a router's key of name, kind and explanation."""
    return (
        key(
            "event_log",
            or_off(PATH),
            "Folder of the delivery event log; a relative path counts from this file's folder.",
        ),
        key(
            "event_log_keys",
            or_off(PATH),
            "Folder of the keys of its pseudonyms; off: beside the event log, with -keys after its name.",
        ),
        key(
            "event_log_retention_days",
            whole_number(1, 3650),
            "Days after which events and the keys of their pseudonyms are erased.",
        ),
        key("event_log_bytes", whole_number(1 << 20), "Beyond so many the oldest events are erased."),
        key("event_log_segment_seconds", duration(), "Seconds until readers see an event, at most."),
    )
