"""What clients do most, over encrypted blocks: the scenarios of other modules, with a client key in the hello.

Upstream's tests of queues, messages and links use none (smp-tests.md 2, 19).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.doubles.smp_harness import SmpHarness, SmpTestClient
from tests.scenarios.smp_router import test_blocking
from tests.unit.smp_router import test_links, test_messages, test_notifications, test_queues

SCENARIOS: list[Callable[[], Awaitable[None]]] = [
    test_queues.test_q1_a_queue_is_created_secured_and_limited,
    test_queues.test_q2_the_sender_secures_a_messaging_queue,
    test_queues.test_q4_several_recipient_keys,
    test_queues.test_q5_a_queue_is_suspended_and_deleted,
    test_queues.test_q6_many_queues_with_empty_correlation_ids_over_several_connections,
    test_messages.test_m2_the_last_subscriber_wins,
    test_messages.test_m3_messages_are_fetched_without_subscribing,
    test_messages.test_m4_fetching_beside_a_subscription,
    test_messages.test_m5_the_quota,
    test_messages.test_m6_two_senders_lose_no_wake_up,
    test_messages.test_late_events_fill_blocks_of_255,
    test_links.test_l1_a_one_time_invitation,
    test_links.test_l2_a_contact_address,
    test_blocking.test_all_but_suspending_and_deleting_is_refused,
    test_notifications.test_n1_a_notifier,
    test_notifications.test_a_hundred_notifications_come_in_blocks_of_at_most_eighty,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__.removeprefix("test_"))
async def test_it_works_over_encrypted_blocks_too(
    scenario: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = SmpHarness.connect
    connected: list[bool] = []

    async def connect_encrypted(self: SmpHarness, version: int = 18, **options: Any) -> SmpTestClient:
        client = await connect(self, version, **{**options, "encrypted": True})
        connected.append(client.session.encrypted)
        return client

    monkeypatch.setattr(SmpHarness, "connect", connect_encrypted)
    await scenario()
    assert connected
    assert all(connected)
