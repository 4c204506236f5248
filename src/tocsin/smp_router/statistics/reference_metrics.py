"""Metrics of services and names, under the names that reference 7.0 gives them (v7.md 5.3).

One name is misspelt there, and so here: dashboards that were made for the reference work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tocsin.operate.metrics import Metric, counter, gauge, totals
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.session.peers import PeerSubscriptions
from tocsin.smp_router.statistics.counters import SmpCounters

_SUBSCRIPTIONS: Final = {
    "as_expected": "ok",
    "more": "more",
    "fewer": "fewer",
    "different": "diff",
    "more_queues": "more_total",
    "fewer_queues": "fewer_total",
}
_BACKLOG: Final = {
    "queues_with_messages": "simplex_smp_rcv_services_sub_msg_count",
    "messages_already_delivered": "simplex_smp_rcv_services_sub_duplicate_count",
}
_NAMES: Final = {
    "requests": "reqs",
    "resolved": "success",
    "not_found": "not_found",
    "resolver_errors": "resolver_errs",
    "disabled": "disabled",
}


def reference_metrics(counters: SmpCounters, subscriptions: PeerSubscriptions) -> Iterator[Metric]:
    for prefix, services in (("rcv", counters.rcv_services), ("ntf", counters.ntf_services)):
        for each in totals(services):
            if each.name in _SUBSCRIPTIONS:
                name = f"simplex_smp_{prefix}_services_sub_{_SUBSCRIPTIONS[each.name]}"
                yield counter(name, each.about, each.value)
    for each in totals(counters.rcv_services):
        if each.name in _BACKLOG:
            yield counter(_BACKLOG[each.name], each.about, each.value)
    yield gauge(
        "simplex_smp_subscribtion_service_subs_total",
        "Queues whose messages connected services receive now.",
        subscriptions.service_queue_count(ServiceRole.MESSAGING),
    )
    yield gauge(
        "simplex_smp_subscription_ntf_service_subs_total",
        "Queues whose notifications connected services receive now.",
        subscriptions.service_queue_count(ServiceRole.NOTIFIER),
    )
    for each in totals(counters.names):
        yield counter(f"simplex_smp_names_{_NAMES[each.name]}", each.about, each.value)
    for prefix, services in (("rcv", counters.rcv_services), ("ntf", counters.ntf_services)):
        for each in totals(services):
            if each.name not in _SUBSCRIPTIONS | _BACKLOG:
                yield counter(f"smp_{prefix}_services_{each.name}_total", each.about, each.value)
