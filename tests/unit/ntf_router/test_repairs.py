"""A plan of reconcile, applied to stores that have changed meanwhile, and to one that a router uses."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.doubles.hostile_smp import hostile_smp
from tests.doubles.ntf_harness import ntf_router, ntf_settings, until
from tests.doubles.ntf_world import StoreOpening, becomes
from tests.unit.ntf_router.store.samples import ROUTER, filled, queue, subscription, token
from tocsin.errors import ConfigError
from tocsin.events.queue_exports import id_text
from tocsin.events.repair_plans import DriftKind, RepairAction, RepairEntry
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.repairs import RepairOutcome, apply_plan, outcome_of
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState, SubscriptionStatus
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications

RESUBSCRIBE, RECREATE, REMOVE = RepairAction.RESUBSCRIBE, RepairAction.RECREATE, RepairAction.REMOVE
S = SubscriptionState
NOW = 1_700_000_000
NO_EVENTS = NtfEventRecorder(None, None, "test", NtfLatencies())


def entry(
    action: RepairAction,
    notifier_id: bytes = b"x",
    status: str = "ACTIVE",
    *,
    associated: bool = False,
    router: RouterLocation = ROUTER,
) -> RepairEntry:
    kind = DriftKind.MISSING_AT_SMP
    return RepairEntry(
        action, kind, router.text(Scheme.SMP), id_text(notifier_id), status, associated=associated
    )


@pytest.mark.parametrize(
    ("action", "exported", "now", "expected"),
    [
        (RESUBSCRIBE, ("ACTIVE", True), (S.ACTIVE, True), RepairOutcome.APPLY),
        (RESUBSCRIBE, ("ACTIVE", True), (S.INACTIVE, False), RepairOutcome.ALREADY),
        (RESUBSCRIBE, ("ACTIVE", True), (S.ACTIVE, False), RepairOutcome.CHANGED),
        (RESUBSCRIBE, ("AUTH", False), (S.AUTH, False), RepairOutcome.APPLY),
        (RESUBSCRIBE, ("AUTH", False), (S.DELETED, False), RepairOutcome.CHANGED),
        (RESUBSCRIBE, ("ERR a", False), (SubscriptionFailed("a"), False), RepairOutcome.APPLY),
        (RECREATE, ("ACTIVE", False), (S.INACTIVE, False), RepairOutcome.APPLY),
        (RECREATE, ("ACTIVE", False), (S.DELETED, False), RepairOutcome.ALREADY),
        (RECREATE, ("ACTIVE", False), (S.ACTIVE, True), RepairOutcome.CHANGED),
        (RECREATE, ("ACTIVE", False), None, RepairOutcome.GONE),
        (REMOVE, ("END", False), (S.END, False), RepairOutcome.APPLY),
        (REMOVE, ("END", False), (S.ACTIVE, False), RepairOutcome.CHANGED),
        (REMOVE, ("END", False), None, RepairOutcome.ALREADY),
        (RepairAction.REPORT, ("", False), None, RepairOutcome.REPORTED),
    ],
)
def test_only_what_is_still_as_it_was_exported_is_repaired(
    action: RepairAction,
    exported: tuple[str, bool],
    now: tuple[SubscriptionStatus, bool] | None,
    expected: RepairOutcome,
) -> None:
    record = None
    if now is not None:
        record = subscription("q", token("t"), status=now[0], service_associated=now[1])
    assert outcome_of(entry(action, status=exported[0], associated=exported[1]), record) is expected


async def test_a_removed_subscription_is_gone_and_a_dry_run_removes_none() -> None:
    store = NtfMemoryStore()
    await filled(store, "a", "q")
    plan = [entry(REMOVE, queue("q").notifier_id, "NEW")]
    for dry_run, left in ((True, True), (False, False)):
        counted = await apply_plan(store, plan, NO_EVENTS, now=NOW, dry_run=dry_run)
        assert counted == {(REMOVE, RepairOutcome.APPLY): 1}
        assert (await store.subscription_of(queue("q")) is not None) is left


async def test_a_queue_of_direct_notifications_is_doubted_or_left_alone() -> None:
    store = NtfMemoryStore()
    owner = await filled(store, "a")
    for name in ("lost", "odd"):
        await store.associate(owner.token_id, queue(name), NOW)
    plan = [
        entry(RECREATE, queue("lost").notifier_id, associated=True),
        entry(RESUBSCRIBE, queue("odd").notifier_id, associated=True),
    ]
    counted = await apply_plan(store, plan, NO_EVENTS, now=NOW, dry_run=False)
    assert counted == {(RECREATE, RepairOutcome.APPLY): 1, (RESUBSCRIBE, RepairOutcome.REPORTED): 1}
    again = await apply_plan(store, plan, NO_EVENTS, now=NOW + 5, dry_run=False)
    assert again == {(RECREATE, RepairOutcome.ALREADY): 1, (RESUBSCRIBE, RepairOutcome.REPORTED): 1}
    assert await store.remove_deleted(NOW + 1) == [queue("lost")]
    assert await store.subscription_of(queue("odd"))


async def test_an_entry_that_names_no_queue_is_refused_before_anything_is_changed() -> None:
    store = NtfMemoryStore()
    await filled(store, "a", "q")
    broken = replace_router(entry(REMOVE), "https://example.com")
    with pytest.raises(ConfigError, match="Nothing was changed"):
        await apply_plan(
            store, [entry(REMOVE, queue("q").notifier_id, "NEW"), broken], NO_EVENTS, now=NOW, dry_run=False
        )
    assert await store.subscription_of(queue("q")) is not None


def replace_router(made: RepairEntry, router: str) -> RepairEntry:
    return RepairEntry(made.action, made.kind, router, made.notifier_id, made.status)


async def test_a_running_router_subscribes_again_when_it_is_told(open_store: StoreOpening) -> None:
    alone = replace(ntf_settings().subscriber, use_service_credentials=False)
    async with hostile_smp() as smp, open_store() as store, ntf_router(store, subscriber=alone) as ntf:
        device = await ntf.active_device(b"abcd")
        again, lost = os.urandom(24), os.urandom(24)
        subscriptions = {each: await smp.subscribe(device, each) for each in (again, lost)}
        for each in subscriptions.values():
            await becomes(device, each, S.ACTIVE)
        # A queue that came while all were subscribed may be asked for once more.
        state = ntf.running.subscribers.routers[smp.location].state
        await until(lambda: not state.pending and not state.resubscribing)
        smp.asked.clear()
        [used] = await store.used_routers()
        plan = [
            entry(RESUBSCRIBE, again, router=used.location),
            entry(RECREATE, lost, router=used.location),
        ]
        counted = await apply_plan(store, plan, NO_EVENTS, now=NOW, dry_run=False)
        assert counted == {(RESUBSCRIBE, RepairOutcome.APPLY): 1, (RECREATE, RepairOutcome.APPLY): 1}
        assert await device.subscription_status(subscriptions[again]) is S.INACTIVE
        assert await device.subscription_status(subscriptions[lost]) is S.AUTH

        assert await ntf.running.subscribers.subscribe_again() == 1
        await becomes(device, subscriptions[again], S.ACTIVE)
        asked = [each for each in smp.asked if isinstance(each.command, SubscribeNotifications)]
        assert {each.entity_id for each in asked} == {again}
