"""Sums decide whether a router differs."""

from __future__ import annotations

import pytest

from tocsin.events.queue_exports import NO_SERVICE
from tocsin.pipeline.reconcile.server_sums import QueueSum, sums_of_servers

OURS = 5
A, B = QueueSum(1, 10, 20), QueueSum(1, 3, 4)
BOTH = QueueSum(2, 10 ^ 3, 20 ^ 4)


@pytest.mark.parametrize(
    ("subscribed", "notifiers", "differs"),
    [
        ([(1, OURS, True, True, A)], [(1, OURS, A)], False),
        ([(1, OURS, True, True, A)], [(1, OURS, A), (1, NO_SERVICE, B), (1, 9, B)], False),
        ([(1, OURS, True, True, A)], [(1, OURS, B)], True),
        ([(1, OURS, True, True, A)], [(1, NO_SERVICE, A)], True),
        ([(1, OURS, True, True, A), (1, OURS, True, False, B)], [(1, OURS, BOTH)], True),
        ([(1, NO_SERVICE, True, False, A)], [(1, NO_SERVICE, A)], False),
        ([(1, NO_SERVICE, True, False, A)], [(1, NO_SERVICE, BOTH)], True),
        ([(1, OURS, False, False, A)], [(1, NO_SERVICE, A)], False),
        ([(1, OURS, False, False, A)], [(1, OURS, A)], True),
        ([], [(1, NO_SERVICE, A)], False),
        # Two addresses of one router, of which only one has a service.
        ([(1, NO_SERVICE, True, True, A), (1, OURS, True, True, B)], [(1, OURS, BOTH)], False),
        ([(1, OURS, True, True, B), (1, NO_SERVICE, True, True, A)], [(1, OURS, BOTH)], False),
    ],
)
def test_a_router_differs_if_the_queues_of_our_service_do_or_single_ones_may(
    subscribed: list[tuple[int, int, bool, bool, QueueSum]],
    notifiers: list[tuple[int, int, QueueSum]],
    differs: bool,
) -> None:
    assert sums_of_servers(subscribed, notifiers)[1].differs is differs
