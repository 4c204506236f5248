"""SMP hosts: silence, subscription storms and clock skew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tocsin.pipeline.report.figures import Figures, HostHealth
from tocsin.pipeline.report.markup import Markup, details, joined, section, table, tag
from tocsin.pipeline.report.wording import count, duration, plural
from tocsin.pipeline.schemas.hourly import SMALL_GROUPS

SKEW_US: Final = -50_000
MOST: Final = 25


def servers_section(figures: Figures) -> Markup:
    meaning = (
        "The connection of each SMP host with the NTF routers. A gap is the longest time within an hour without a "
        "notification. A storm is an hour in which queues were resubscribed repeatedly. Skew is the shortest time from "
        "sent to received; below zero, the clocks disagree."
    )
    if not figures.servers:
        return section(
            "servers", "SMP hosts", meaning, tag("p", "No SMP host was seen in this range.", class_="empty")
        )
    troubled = [(server, list(troubles(server))) for server in figures.servers]
    bad = [
        tag("li", tag("span", "check", class_="badge bad"), f" {s.host}: {'; '.join(t)}.")
        for s, t in troubled
        if t
    ]
    quiet = tag("p", tag("span", "fine", class_="badge good"), " No storms, silent hours or skewed clocks.")
    return section(
        "servers",
        "SMP hosts",
        meaning,
        tag("ul", *bad, class_="changes") if bad else quiet,
        _tables(figures.servers),
        bad="Silent hours together with storms: the connection to that host keeps breaking; look at its log and at the "
        "network. Unknown queues: run `tocsin pipeline reconcile`. Skew: run NTP on both machines.",
    )


HEADER: Final = (
    "SMP host",
    "received",
    "unknown queue",
    "subscribed",
    "ended",
    "errors",
    "storm hours",
    "silent hours",
    "gap",
    "skew",
)


def _tables(servers: Sequence[HostHealth]) -> Markup:
    rows = [_row(server) for server in servers]
    first = table(HEADER, rows[:MOST], caption="Busiest first")
    if len(rows) <= MOST:
        return first
    rest = table(HEADER, rows[MOST:], caption="The others")
    return joined([first, details(f"{count(len(rows) - MOST)} more", rest)])


def troubles(server: HostHealth) -> Iterator[str]:
    """Problems that an operator should look at."""
    if server.storm_hours:
        yield f"resubscribed repeatedly in {plural(server.storm_hours, 'hour')}"
    if server.host == SMALL_GROUPS:
        return
    if server.silent_hours:
        yield f"silent or nearly silent in {plural(server.silent_hours, 'hour')} that are busy on other days"
    if server.skew_us is not None and server.skew_us < SKEW_US:
        yield f"its clock is ahead of the NTF router's by at least {duration(-server.skew_us)}"
    if server.errors > server.subscribed:
        yield f"{count(server.errors)} subscriptions refused, {count(server.subscribed)} accepted"


def _row(server: HostHealth) -> tuple[str, ...]:
    return (
        server.host,
        count(server.received),
        count(server.unknown_queue),
        count(server.subscribed),
        count(server.unsubscribed),
        count(server.errors),
        count(server.storm_hours),
        count(server.silent_hours),
        duration(server.longest_gap_seconds * 1_000_000) if server.longest_gap_seconds else "–",
        "–" if server.skew_us is None else duration(server.skew_us),
    )
