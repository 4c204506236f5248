"""Metrics and tables → what the view `Operate` shows."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin.crypto.web_push import VapidKey
from tocsin.ntf_router.metrics import fleet_metrics, web_push_key_metric
from tocsin.ntf_router.snapshots import FleetSnapshot, InstanceSnapshot
from tocsin.operate.metrics import Metric, MetricKind, by_label, exposition, gauge, histogram
from tocsin.pipeline.transforms.latency_spans import SPANS
from tocsin.web.figure_texts import FIGURES, LIVE_STAGES, TABLE_STAGES, Level
from tocsin.web.metric_readings import MetricReadings
from tocsin.web.operate_view import ENDS, Readings, TableReadings, accounting, figure, operate_view

NTF = MetricReadings.parse(
    exposition(
        [
            gauge("simplex_ntf_accounting_received", "", 20),
            gauge("simplex_ntf_accounting_accepted", "", 12),
            gauge("simplex_ntf_accounting_superseded", "", 3),
            gauge("simplex_ntf_accounting_pending", "", 1),
            by_label(
                MetricKind.GAUGE, "simplex_ntf_accounting_failed", "", "reason", {"expired": 1, 'a "b"': 2}
            ),
            histogram("simplex_ntf_store_seconds", "", [0.01, 0.1, 1.0], [90, 6, 3, 1], 5.0),
            gauge("simplex_ntf_smp_subscription_active_sub_count_other", "", 30),
            gauge("simplex_ntf_smp_service_subscription_active_sub_count_other", "", 40),
            gauge("simplex_ntf_smp_subscription_pending_sub_count_other", "", 10),
            by_label(
                MetricKind.GAUGE,
                "simplex_ntf_smp_agent_sub_workers_count_own",
                "",
                "server",
                {"a": 1, "b": 1},
            ),
        ]
    )
)


def section(view: dict[str, Any], key: str) -> dict[str, Any]:
    [found] = [each for each in view["sections"] if each["key"] == key]
    assert isinstance(found, dict)
    return found


def values(shown: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: each["value"] for each in shown["figures"]}


def test_the_key_for_web_push_is_shown() -> None:
    assert section(operate_view(Readings(NTF), 1.0), "states")["tables"] == []
    ntf = MetricReadings.parse(exposition([web_push_key_metric(VapidKey.from_scalar(b"\x11" * 32).public)]))
    [shown] = section(operate_view(Readings(ntf), 1.0), "states")["tables"]
    assert shown["rows"] == [
        ["BAIX5hfwtkQ5KCePlpmeaaI6TywVK99tbN9m5bgCgtTtGUp968uXcS0t2jyoWqh2Wlb0X8dYWZZS8ol8ZTBuV5Q"]
    ]


def test_losses_of_the_last_check_are_shown_and_are_bad() -> None:
    tables = TableReadings(days=1, losses={"overdue": 3, "never_received": 0, "unknown_queue": 0})
    shown = {
        each["key"]: each
        for each in section(operate_view(Readings(NTF, tables=tables), 1.0), "tables")["figures"]
    }
    assert (shown["tables-overdue"]["value"], shown["tables-overdue"]["level"]) == (3, Level.BAD)
    assert shown["tables-never_received"]["level"] is Level.GOOD
    unchecked = section(operate_view(Readings(NTF, tables=TableReadings(days=1)), 1.0), "tables")
    assert values(unchecked)["tables-overdue"] is None


def test_the_instances_of_a_fleet_are_shown_with_what_each_does() -> None:
    alone = operate_view(Readings(NTF), 1.0)
    assert "fleet" not in [each["key"] for each in alone["sections"]]
    members = (
        InstanceSnapshot(10, "tocsin ntf, host b, process 7", True, {"smp": 1, "push": 0, "chores": 0}),
        InstanceSnapshot(9, "tocsin ntf, host a, process 5", False, {"smp": 2, "push": 64, "chores": 1}),
    )
    fleet = FleetSnapshot(9, members, {"smp": 2}, 3, taken_over=4, unreachable=2, renewal_seconds=1.25)
    shown = section(
        operate_view(Readings(MetricReadings.parse(exposition(fleet_metrics(fleet)))), 1.0), "fleet"
    )
    found = {each["key"]: (each["value"], each["level"]) for each in shown["figures"]}
    assert found == {
        "fleet_instances": (2, Level.PLAIN),
        "fleet_leases_free": (3, Level.LOOK),
        "fleet_taken_over": (4, Level.PLAIN),
        "fleet_unreachable": (2, Level.PLAIN),
        "fleet_lapses": (0, Level.GOOD),
        "fleet_renewal": (1250, Level.LOOK),
    }
    [table] = shown["tables"]
    assert table["rows"] == [
        ["9", "host a, process 5", "serving", 2, 64, 1],
        ["10", "host b, process 7", "leaving", 1, 0, 0],
    ]


def test_the_parts_and_the_difference_add_up() -> None:
    shown = section(operate_view(Readings(NTF), 1.0), "funnel")
    found = values(shown)
    assert found["funnel-difference"] == 1
    assert found["funnel-received"] == sum(found[f"funnel-{end}"] for end in ENDS)
    assert shown["sum"]["total"] == sum(part["value"] for part in shown["sum"]["parts"])
    [difference] = [each for each in shown["figures"] if each["key"] == "funnel-difference"]
    assert difference["level"] is Level.BAD
    assert accounting({"received": 2, "accepted": 2, "failed": None})["difference"] == 0


def test_progress_and_health_count_own_and_other_routers_services_and_queues() -> None:
    view = operate_view(Readings(NTF), 1.0)
    assert section(view, "resubscription")["progress"] == {
        "done": 70,
        "whole": 80,
        "label": "queues subscribed",
    }
    assert values(section(view, "routers"))["routers_away"] == 2


def test_routers_in_the_operators_own_domains_are_listed() -> None:
    def of(name: str, values: dict[str, float]) -> Metric:
        return by_label(MetricKind.GAUGE, f"simplex_ntf_{name}", "", "server", values)

    text = exposition(
        [
            of("smp_subscribers_count_own", {"smp1.own": 1, "smp2.own": 1}),
            of("smp_agent_clients_count_own", {"smp1.own": 1}),
            of("smp_subscription_active_sub_count_own", {"smp1.own": 5, "smp2.own": 0}),
            of("smp_service_subscription_active_sub_count_own", {"smp1.own": 2, "smp2.own": 0}),
            of("smp_subscription_pending_sub_count_own", {"smp2.own": 9}),
            of("notifications_received_own", {"smp1.own": 30}),
        ]
    )
    [table] = section(operate_view(Readings(MetricReadings.parse(text)), 1.0), "routers")["tables"]
    assert table["rows"] == [["smp1.own", "yes", 7, 0, 30, 0], ["smp2.own", "NO", 0, 9, 0, 0]]


def test_missing_readings_are_named_and_not_shown_as_zero() -> None:
    view = operate_view(Readings(missing={"NTF router": "it does not answer"}), 1.0)
    assert view["missing"] == {"NTF router": "it does not answer"}
    assert values(section(view, "funnel")) == {"funnel-received": None}
    assert values(section(view, "states"))["tokens"] is None
    assert section(view, "latency")["ranges"] == []
    assert [each["key"] for each in view["sections"]].count("tables") == 0


def test_tables_are_shown_beside_live_numbers() -> None:
    server = {"smp_host": "a", "received": 5, "unknown_queue": 0, "errors": 0, "longest_gap_seconds": 60}
    tables = TableReadings(
        days=1,
        funnel={"received": 3, "accepted": 2, "superseded": 1},
        hours=(("2026-11-15 07:00", {"received": 3, "accepted": 2, "superseded": 1}),),
        stages=(("provider", 9, (0.1, 0.2, 0.3)),),
        outcomes=(("accepted", "", 2),),
        servers=({**server, "skew_us": -2500, "storms": 1}, {**server, "skew_us": None, "storms": 0}),
        drift=(("a", "missing", 4), ("b", "missing", 1)),
    )
    view = operate_view(Readings(NTF, tables=tables), 1.0)
    assert values(section(view, "tables"))["tables-difference"] == 0
    assert section(view, "tables")["hours"][0]["accepted"] == 2
    assert section(view, "latency")["ranges"][-1]["quantiles"] == [0.1, 0.2, 0.3]
    assert values(section(view, "routers"))["drift_queues"] == 5
    rows = section(view, "routers")["tables"][1]["rows"]
    assert [row[5] for row in rows] == [-2, None]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_texts(name: str) -> None:
    shown = figure(name, 0)
    assert shown["label"]
    assert shown["meaning"].endswith((".", "!"))
    assert shown["action"].endswith(".")
    assert shown["level"] in (Level.PLAIN, Level.GOOD), "nothing is no reason to worry"


def test_every_stage_has_its_texts() -> None:
    assert list(TABLE_STAGES) == list(SPANS)
    assert all(all(texts) for texts in [*LIVE_STAGES.values(), *TABLE_STAGES.values()])


def test_levels_rise_with_the_number() -> None:
    levels = [figure("pending", count)["level"] for count in (0, 1_000, 100_000)]
    assert levels == [Level.GOOD, Level.LOOK, Level.BAD]
    assert figure("difference", -1)["level"] is Level.BAD
    assert figure("pending", None)["level"] is Level.PLAIN
