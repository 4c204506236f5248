"""Tests of one SMP router, with two workers that have its connections."""

from __future__ import annotations

import inspect

import pytest

from tests.doubles.smp_harness import WORKERS_VARIABLE
from tests.doubles.worker_tasks import start_workers_as_tasks
from tests.scenarios.smp_router.test_blocking import *  # noqa: F403
from tests.scenarios.smp_router.test_blocks import *  # noqa: F403
from tests.scenarios.smp_router.test_connections import *  # noqa: F403
from tests.scenarios.smp_router.test_encrypted_blocks import *  # noqa: F403
from tests.scenarios.smp_router.test_encrypted_sessions import *  # noqa: F403
from tests.scenarios.smp_router.test_notification_events import *  # noqa: F403
from tests.scenarios.smp_router.test_notification_rules import *  # noqa: F403
from tests.scenarios.smp_router.test_proxied_conversations import *  # noqa: F403
from tests.scenarios.smp_router.test_services import *  # noqa: F403
from tests.scenarios.smp_router.test_slow_connections import *  # noqa: F403
from tests.scenarios.smp_router.test_store_trouble import *  # noqa: F403

# Some tests look into the router's own connections.
for _name, _test in list(globals().items()):
    if _name.startswith("test_") and "BlockConnection" in inspect.getsource(_test):
        del globals()[_name]
# Here it is known a moment later that the system has taken a block.
del test_late_events_reach_a_connection_whose_write_queue_is_shorter_than_they_are  # noqa: F821
# Blocks reach the router one by one if they reach the worker so.
del test_messages_that_arrive_together_are_answered_together  # noqa: F821


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    start_workers_as_tasks(monkeypatch)
    monkeypatch.setenv(WORKERS_VARIABLE, "2")
