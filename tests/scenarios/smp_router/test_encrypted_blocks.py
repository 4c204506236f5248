"""The tests of queues, messages, links and notifications once more, with encrypted blocks (smp-tests.md 19)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.doubles.smp_harness import SmpHarness
from tests.scenarios.smp_router import test_expiration, test_services
from tests.unit.smp_router import test_links, test_messages, test_notifications, test_queues

CASES: list[Callable[[], Awaitable[None]]] = [
    test_queues.test_q1_a_queue_is_created_secured_and_limited,
    test_queues.test_q2_the_sender_secures_a_messaging_queue,
    test_queues.test_q4_several_recipient_keys,
    test_queues.test_q5_a_queue_is_suspended_and_deleted,
    test_queues.test_q6_many_queues_with_empty_correlation_ids_over_several_connections,
    test_queues.test_q7_new_queues_can_be_switched_off,
    test_messages.test_m2_the_last_subscriber_wins,
    test_messages.test_m3_messages_are_fetched_without_subscribing,
    test_messages.test_m4_fetching_beside_a_subscription,
    test_messages.test_m5_the_quota,
    test_messages.test_m6_two_senders_lose_no_wake_up,
    test_expiration.test_e1_old_messages_expire_when_a_new_one_is_sent,
    test_links.test_l1_a_one_time_invitation,
    test_links.test_l2_a_contact_address,
    test_notifications.test_n1_a_notifier,
    test_notifications.test_n2_a_notifier_that_is_a_service,
    test_notifications.test_n3_a_service_after_two_restarts,
    test_notifications.test_a_hundred_notifications_come_in_blocks_of_at_most_eighty,
    test_services.test_a_messaging_service_of_6_5,
]


@pytest.mark.parametrize("case", CASES, ids=[case.__name__.removeprefix("test_") for case in CASES])
async def test_the_same_with_encrypted_blocks(
    case: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection of the test is encrypted, and there is at least one."""
    connections = []
    plain = SmpHarness.connect

    async def connect(router: SmpHarness, *arguments: int, **options: bool) -> object:
        client = await plain(router, *arguments, **{**options, "encrypted": True})  # type: ignore[arg-type]
        connections.append(client)
        return client

    monkeypatch.setattr(SmpHarness, "connect", connect)
    await case()
    assert connections
    assert all(client.session.encrypted for client in connections)
