"""The Grafana dashboard of deploy/, made from one table: `python -m tools.grafana_dashboard` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE: Final = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards" / "tocsin.json"
_SOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
_COLUMNS: Final = 24
_HEIGHT: Final = 8


class Panel(NamedTuple):
    title: str
    about: str
    """What it means, and what to do when it is bad."""
    series: tuple[tuple[str, str], ...]
    """PromQL and legend."""
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"


def _rate(metric: str) -> str:
    return f"rate({metric}[$__rate_interval])"


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"histogram_quantile({each}, {_rate(metric + '_bucket')})", f"{float(each) * 100:g} %")
        for each in ("0.5", "0.95", "0.99")
    )


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Does it add up?",
        (
            Panel(
                "Unaccounted for",
                "received - accepted - superseded - failed - pending. Not 0 is a bug or a loss: keep the event log.",
                (("simplex_ntf_accounting_difference", "difference"),),
                width=4,
                kind="stat",
            ),
            Panel(
                "Pending",
                "Notifications without an outcome. Growing: more come than the provider takes.",
                (("simplex_ntf_accounting_pending", "pending"),),
                width=4,
                kind="stat",
            ),
            Panel(
                "Received and what became of it",
                "Notifications of SMP routers, and their ends.",
                (
                    (_rate("simplex_ntf_accounting_received"), "received"),
                    (_rate("simplex_ntf_accounting_accepted"), "accepted"),
                    (_rate("simplex_ntf_accounting_superseded"), "superseded"),
                ),
                "ops",
                width=8,
            ),
            Panel(
                "Failed, by reason",
                "Few of them are tokens that went; many of one reason are a wrong key, topic or provider.",
                ((_rate("simplex_ntf_accounting_failed"), "{{reason}}"),),
                "ops",
                width=8,
            ),
        ),
    ),
    (
        "How long does it take?",
        (
            Panel(
                "From NMSG to the provider's acceptance",
                "The whole way through the NTF router.",
                _quantiles("simplex_ntf_received_to_accepted_seconds"),
                "s",
            ),
            Panel(
                "Provider",
                "From a push to its answer. Slow: the provider, or the network to it.",
                _quantiles("simplex_ntf_provider_seconds"),
                "s",
            ),
            Panel(
                "Store",
                "Until a notification is safe. Slow: the disk or the database.",
                _quantiles("simplex_ntf_store_seconds"),
                "s",
            ),
        ),
    ),
    (
        "Tokens and subscriptions",
        (
            Panel(
                "In the store",
                "Device tokens, and queues they want to hear of.",
                (
                    ("simplex_ntf_tokens_total", "tokens"),
                    ("simplex_ntf_subscriptions_approx_total", "subscriptions"),
                ),
            ),
            Panel(
                "Active tokens",
                "With notifications in a day, week or month.",
                tuple((f"simplex_ntf_tokens_count_{each}", each) for each in ("daily", "weekly", "monthly")),
            ),
            Panel(
                "Commands of devices",
                "Many refusals: clients with old tokens, or somebody who tries keys.",
                (
                    (_rate("simplex_ntf_commands"), "commands"),
                    (_rate("simplex_ntf_auth_failures"), "AUTH"),
                    (_rate("simplex_ntf_command_errors"), "malformed"),
                ),
                "ops",
            ),
        ),
    ),
    (
        "SMP routers",
        (
            Panel(
                "Connected",
                "Known, connected, and to be connected or resubscribed.",
                (
                    ("simplex_ntf_smp_subscribers_count_other", "known"),
                    ("simplex_ntf_smp_agent_clients_count_other", "connected"),
                    ("simplex_ntf_smp_agent_sub_workers_count_other", "away or resubscribing"),
                ),
            ),
            Panel(
                "Subscribed queues",
                "One by one, as a service, and those that still wait.",
                (
                    ("simplex_ntf_smp_subscription_active_sub_count_other", "one by one"),
                    ("simplex_ntf_smp_service_subscription_active_sub_count_other", "as a service"),
                    ("simplex_ntf_smp_subscription_pending_sub_count_other", "pending"),
                ),
            ),
            Panel(
                "Disagreements",
                "Other numbers of queues than expected, services taken over. Reconcile and repair.",
                (
                    ("increase(simplex_ntf_service_drifts[1h])", "drift"),
                    ("increase(simplex_ntf_services_taken_over[1h])", "taken over"),
                ),
            ),
        ),
    ),
    (
        "SMP router of our own",
        (
            Panel(
                "Messages",
                "Sent, delivered and acknowledged.",
                (
                    (_rate("smp_messages_sent_total"), "sent"),
                    (_rate("smp_messages_delivered_total"), "delivered"),
                    (_rate("smp_messages_received_total"), "acknowledged"),
                ),
                "ops",
            ),
            Panel(
                "Notifications",
                "Put into the store, confirmed, expired. Expired ones waited a day for an NTF router.",
                (
                    (_rate("smp_notifications_enqueued_total"), "stored"),
                    (_rate("smp_notifications_confirmed_total"), "confirmed"),
                    (_rate("smp_notifications_expired_total"), "expired"),
                    ("smp_notifiers_waiting", "notifiers waiting"),
                ),
            ),
            Panel(
                "Queues and connections",
                "What exists now.",
                (("smp_queues", "queues"), ("smp_open_connections", "connections")),
            ),
        ),
    ),
    (
        "Direct notifications",
        (
            Panel(
                "Packets at the NTF router",
                "Accepted, sealed to an erased key (devices fetch the new one), refused.",
                (
                    (_rate("simplex_ntf_direct_packets_accepted"), "accepted"),
                    (_rate("simplex_ntf_direct_packets_unknown_key"), "erased key"),
                    (_rate("simplex_ntf_direct_packets_refused"), "refused"),
                ),
                "ops",
            ),
            Panel(
                "Packets at the SMP router",
                "Waiting for their NTF routers. Growing: one of them is away.",
                (("smp_packets_waiting", "waiting"), (_rate("smp_packets_dropped_total"), "dropped")),
            ),
            Panel(
                "Held back by priority",
                "Messages that notify nobody because the recipient wants mentions only, or nothing.",
                ((_rate("smp_notifications_held_back_total"), "held back"),),
                "ops",
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, of_row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": top},
            }
        )
        top += 1
        left = 0
        for panel in of_row:
            panels.append(_panel(panel, len(panels) + 1, left, top))
            left += panel.width
        top += _HEIGHT
    return {
        "uid": "tocsin",
        "title": "Tocsin",
        "tags": ["tocsin", "simplex"],
        "timezone": "utc",
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "annotations": {"list": []},
        "templating": {"list": []},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}}
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": panel.width, "x": left, "y": top},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for place, (expr, legend) in enumerate(panel.series)
        ],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
    print(f"{FILE.name} was written")
