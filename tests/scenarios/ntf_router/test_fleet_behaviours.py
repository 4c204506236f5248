"""Tests of one NTF router, with two instances of a fleet behind a TCP balancer in its place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doubles.balanced_routers import BalancedWorld
from tests.doubles.ntf_world import World, folder_of, kept
from tests.scenarios.ntf_router.test_added_cases import *  # noqa: F403
from tests.scenarios.ntf_router.test_behaviours import *  # noqa: F403
from tests.scenarios.ntf_router.test_end_to_end import *  # noqa: F403
from tests.scenarios.ntf_router.test_reference_defects import *  # noqa: F403
from tests.scenarios.ntf_router.test_restarts import *  # noqa: F403
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.push.fake.server import running_fake_apns

pytestmark = pytest.mark.timeout(120)

# They look at the counters of one process, and any of the two may count.
del test_a_message_waits_until_its_new_device_token_is_verified  # noqa: F821
del test_B08_B26_pushes_come_by_themselves_after_an_outage  # noqa: F821
del test_B23_one_queue_subscribed_fifty_times_at_once_is_one_subscription  # noqa: F821
# Its two routers would be one fleet.
del test_a_token_works_until_it_is_replaced_or_deleted  # noqa: F821
# A fleet does not believe the first END (`test_an_end_is_believed_the_second_time`).
del test_B11_a_forgotten_service_revives_no_ended_queue  # noqa: F821
del test_B14_subscribing_again_does_not_revive_an_ended_queue  # noqa: F821


@pytest.fixture
async def world(tmp_path: Path, url: str) -> AsyncIterator[World]:
    """Instead of the one with each kind of store."""
    async with running_fake_apns(folder_of(tmp_path, "apns")) as apns:
        yield BalancedWorld(apns, kept(NtfMemoryStore()), url=url)
        assert apns.broken == []


@pytest.fixture
def memory_world(world: World) -> World:
    return world
