"""The meaning of every table and column, for `tocsin pipeline tables` and the reference pages."""

from __future__ import annotations

from typing import Final

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.schemas.notifications import STAGES, moment

TABLES: Final = {
    "events": "One event of a router, as its event log has it. Repeated lines are repeated here.",
    "quarantine": "A line of an event log that is not a valid event. Its content is not copied.",
    "notifications": "One notification with the time of each stage that it reached.",
    "funnel_hourly": "Counts of notifications by stage in a cell: an hour, SMP host and provider of enough devices.",
    "outcomes_hourly": "Ends of notifications in a cell, by reason.",
    "engines_hourly": "Ends of notifications in an hour by the engine that pushed them.",
    "latency_hourly": "Durations of a span of the path in a cell, as a sketch that merges with others.",
    "tokens_daily": "Tokens of a day by what happened to them, without counts of few tokens.",
    "servers_hourly": "The health of an SMP host in an hour.",
    "drift": "Queues of an SMP host about which the routers disagree, on the day of the comparison.",
    "segments": "A segment of an event log that was read.",
    "fanout": "The outcome of one push of a campaign.",
}

_OF_STAGES: Final[dict[str, str]] = {
    **{moment(stage): f"Time of the stage `{stage}`, microseconds since 1970." for stage in STAGES},
    **{str(stage): f"Notifications that reached the stage `{stage}`." for stage in STAGES},
}
COLUMNS: Final = {
    **_OF_STAGES,
    "day": "Day in UTC.",
    "hour": "Hour in UTC.",
    "id": "Id of the event, null where it follows from notification, stage and attempt.",
    "stage": "One of the stages of delivery events.",
    "at": "Time of the event, microseconds since 1970.",
    "mono": "Monotonic clock of the router, microseconds.",
    "router": "The router instance that wrote the event.",
    "period": "The period of the pseudonyms: day since 1970, and fingerprint of its key.",
    "version": "Version of the event's schema.",
    "smp_host": "Host of the SMP router, or `(small groups)`.",
    "provider": "Push provider and environment.",
    "outcome": "The meaning of the provider's answer.",
    "reason": "The reason of the outcome, or `(small groups)`.",
    "attempt": "Number of the push.",
    "batch": "Pseudonym of the push.",
    "engine": "Who pushed: inline (the router) or spark (the job); null if nobody did, or before version 2 of events.",
    "priority": "Priority of the message: mention or highest; empty for ordinary messages.",
    "size": "Size of the payload in bytes.",
    "from_status": "Status before a change of a token or subscription.",
    "to_status": "Status after the change, null if it was removed.",
    "cause": "The command or event that caused the change.",
    "notification_high": "First half of the notification's hash.",
    "notification_low": "Second half of the notification's hash.",
    "queue": "Hash of the queue's pseudonym.",
    "token": "Hash of the token's pseudonym.",
    "segment": "Folder and name of the segment.",
    "source": "Folder of the segment.",
    "bytes": "Bytes of it that were read.",
    "read_at": "When it was read, microseconds since 1970.",
    "line_bytes": "Length of the line.",
    "line_hash": "First 16 hexadecimal digits of the line's SHA-256.",
    "seen_at": "When the line was read, microseconds since 1970.",
    "attempts": "The highest attempt.",
    "last_received_at": "Time at which it was received again, null if it was received once.",
    "pending": "Received, without an end.",
    "redelivered": "Received more than once.",
    "ends_twice": "Received once, with two ends.",
    "ends_unreceived": "With an end, but never received.",
    "difference": "received − accepted − superseded − failed − shed − pending − ends_twice: must be 0.",
    "tokens": "Number of tokens.",
    "n": "Number of notifications.",
    "leg": "The span: between which two stages.",
    "negative": "Durations below 0: clocks disagree.",
    "sketch": "KLL sketch of the durations in microseconds.",
    "change": "A status that tokens changed to, `pushed` (a push was accepted) or `dead` (none was).",
    "subscribed": "Queues that were subscribed.",
    "unsubscribed": "Subscriptions that ended.",
    "errors": "Subscriptions that were refused.",
    "queues_changed": "Queues whose subscription changed.",
    "longest_gap_seconds": "Longest time within the hour without a notification.",
    "skew_us": "Shortest time from sent to received, microseconds; negative if clocks disagree.",
    "storm": "Queues were resubscribed repeatedly.",
    "kind": "The kind of disagreement.",
    "queues": "Number of queues.",
    "campaign": "Id of the campaign.",
    "part": "Part of the campaign.",
}
"""By column, since a column means the same in every table."""
OTHERS: Final = {
    ("events", "outcome"): "The meaning of the provider's answer.",
    ("events", "reason"): "The provider's reason, or another reason of the outcome.",
    ("events", "smp_host"): "Host of the SMP router, in clear: routers are public.",
    ("notifications", "reason"): "The reason why it failed, was shed or dropped.",
    ("notifications", "smp_host"): "Host of the SMP router.",
    ("quarantine", "reason"): "The first check that the line failed.",
    ("quarantine", "day"): "Day in UTC on which the line was read.",
    (
        "outcomes_hourly",
        "outcome",
    ): f"The end: {', '.join(sorted([Stage.ACCEPTED, Stage.SUPERSEDED, Stage.FAILED, Stage.SHED]))}.",
    ("segments", "segment"): "Name of the segment.",
    ("segments", "day"): "Day in UTC on which it was read.",
    ("fanout", "token"): "Keyed hash of the token.",
    ("fanout", "outcome"): "The outcome of the push.",
}
"""Columns that mean something else in a table."""


def meaning(table: str, column: str) -> str:
    return OTHERS.get((table, column)) or COLUMNS[column]
