"""Metrics under the reference's names."""

from __future__ import annotations

from tocsin.operate.metrics import exposition
from tocsin.smp_router.session.peers import PeerSubscriptions
from tocsin.smp_router.statistics.counters import SmpCounters
from tocsin.smp_router.statistics.reference_metrics import reference_metrics

WANTED = {
    *(
        f"simplex_smp_{role}_services_sub_{name}"
        for role in ("rcv", "ntf")
        for name in ("ok", "more", "fewer", "diff", "more_total", "fewer_total")
    ),
    "simplex_smp_rcv_services_sub_msg_count",
    "simplex_smp_rcv_services_sub_duplicate_count",
    "simplex_smp_subscribtion_service_subs_total",
    "simplex_smp_subscription_ntf_service_subs_total",
    *(f"simplex_smp_names_{name}" for name in ("reqs", "success", "not_found", "resolver_errs", "disabled")),
}
"""v7.md 5.3"""


def test_names_are_those_of_the_reference_and_each_has_its_own_value() -> None:
    counters = SmpCounters()
    counters.rcv_services.more_queues = 5
    counters.ntf_services.different = 6
    counters.names.resolved = 7
    metrics = list(reference_metrics(counters, PeerSubscriptions(counters)))
    names = {each.name for each in metrics}
    assert {name for name in names if name.startswith("simplex_")} == WANTED
    text = exposition(metrics)
    assert "simplex_smp_rcv_services_sub_more_total 5\n" in text
    assert "simplex_smp_ntf_services_sub_diff 6\n" in text
    assert "simplex_smp_names_success 7\n" in text


def test_every_counter_of_services_and_names_is_a_metric() -> None:
    counters = SmpCounters()
    metrics = list(reference_metrics(counters, PeerSubscriptions(counters)))
    assert len(metrics) == 15 + 13 + 2 + 5
