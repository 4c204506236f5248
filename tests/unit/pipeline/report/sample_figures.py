"""Figures as a lake would give them, without a lake."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

from tocsin.events.delivery_events import Stage
from tocsin.pipeline.report.figures import (
    Days,
    DeliveryAccount,
    EngineCount,
    Figures,
    HostDrift,
    HostHealth,
    HostHour,
    Hour,
    OutcomeCount,
    QuarantinedLines,
    ReportPeriod,
    SpanLatency,
    TokenDay,
)
from tocsin.pipeline.schemas.notifications import STAGES

DAYS = Days(date(2026, 11, 9), date(2026, 11, 15))
SUMS = DeliveryAccount(received=10_000, accepted=8_500, superseded=1_200, failed=250, shed=30, pending=20)
NO_STAGES = dict.fromkeys(STAGES, 0)
STAGE_COUNTS = {
    **NO_STAGES,
    Stage.ENQUEUED: 10_050,
    Stage.SENT: 10_040,
    Stage.RECEIVED: 10_000,
    Stage.ATTEMPTED: 8_750,
    Stage.ACCEPTED: 8_500,
    Stage.SUPERSEDED: 1_200,
    Stage.FAILED: 250,
    Stage.SHED: 30,
    Stage.WOKEN: 400,
}
LEG = SpanLatency(
    "SMP router to provider",
    8_500,
    12,
    (900, 5_000, 9_000, 30_000, 82_000, 150_000, 220_000, 290_000, 410_000),
)
PERIOD = ReportPeriod(
    DAYS,
    SUMS,
    STAGE_COUNTS,
    (LEG,),
    (OutcomeCount("accepted", "", 8_500), OutcomeCount("failed", "token_invalid", 250)),
    (EngineCount("spark", 5_000, 100, (400_000, 600_000, 900_000)), EngineCount("inline", 3_500, 150)),
)


def server(host: str = "smp1.example", **values: int | None) -> HostHealth:
    usual = HostHealth(
        host=host,
        received=5_000,
        unknown_queue=3,
        subscribed=40,
        unsubscribed=4,
        errors=0,
        storm_hours=0,
        longest_gap_seconds=120,
        silent_hours=0,
        skew_us=900,
    )
    return replace(usual, **values)  # type: ignore[arg-type]


FIGURES = Figures(
    period=PERIOD,
    before=replace(PERIOD, days=DAYS.before()),
    made_at=datetime(2026, 11, 16, 8, 30, tzinfo=UTC),
    built_at=datetime(2026, 11, 16, 8, 0, tzinfo=UTC),
    smallest_group=10,
    hours=tuple(
        Hour(
            datetime(2026, 11, 9 + day, hour, tzinfo=UTC),
            DeliveryAccount(received=50 + hour, accepted=48 + hour, failed=2),
        )
        for day in range(7)
        for hour in range(24)
    ),
    host_hours=tuple(
        HostHour(f"smp{host}.example", hour, 100 * host + hour, host, 0)
        for host in range(1, 5)
        for hour in range(24)
    ),
    tokens=(
        *(
            TokenDay(day, change, "", n)
            for day in DAYS.each()
            for change, n in (("pushed", 900), ("dead", 20))
        ),
        TokenDay(DAYS.first, "INVALID", "UNREGISTERED", 14),
    ),
    servers=(server(), server("smp2.example", storm_hours=2)),
    quarantined=(QuarantinedLines("not JSON", 7, 2),),
    drift=(HostDrift("smp1.example", "not subscribed", 40),),
    drift_day=DAYS.last,
)
EMPTY = Figures(
    period=ReportPeriod(Days(DAYS.last, DAYS.last), DeliveryAccount(), NO_STAGES),
    before=None,
    made_at=FIGURES.made_at,
    built_at=FIGURES.built_at,
    smallest_group=10,
)
