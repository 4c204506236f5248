"""Applies a plan of `tocsin pipeline reconcile` to a store.

The plan is as old as the exports behind it, so every entry is first compared with the current subscription. An entry
that is already as planned stays, and one that is neither as planned nor as exported is skipped. A plan can therefore be
applied twice, and while a router uses the store. Its delivery events go to a folder of their own first, so that the
accounting stays correct.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Final

from tocsin.durable.log_files import FolderLock
from tocsin.errors import ConfigError, DecodeError
from tocsin.events.event_log import PUBLISHED, opened_event_log
from tocsin.events.pseudonyms import keys_folder
from tocsin.events.queue_exports import WANTED, id_of_text
from tocsin.events.repair_plans import RepairAction, RepairEntry
from tocsin.ntf_router.event_recorder import NtfEventRecorder
from tocsin.ntf_router.session.requests import NtfEvents
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.statistics.counters import NtfLatencies
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.ntf_router.store.records import SubscriptionRecord
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus, subscription_status_text
from tocsin.protocol.ntf.subscription_commands import NotifierQueue

BATCH: Final = 256
CAUSE: Final = "repair"
_OFFLINE_FOLDER: Final = ".offline"
_OFFLINE_LOCK: Final = "lock"

TARGETS: Final[dict[RepairAction, SubscriptionStatus]] = {
    RepairAction.RESUBSCRIBE: SubscriptionState.INACTIVE,
    # The SMP router's answer to NSUB. A device that finds it at its check subscribes again (ntf.md 6.6).
    RepairAction.RECREATE: SubscriptionState.AUTH,
}
_TO_BE_SUBSCRIBED: Final = (SubscriptionState.NEW, SubscriptionState.PENDING, SubscriptionState.INACTIVE)


class RepairOutcome(StrEnum):
    """The outcome of one entry of a plan."""

    APPLY = "applied"
    ALREADY = "already"
    """Already as planned."""
    CHANGED = "changed_since"
    """Neither as exported nor as planned: skipped."""
    GONE = "gone"
    """The subscription no longer exists: skipped."""
    REPORTED = "reported"
    """An NTF router can do nothing about it."""


def outcome_of(entry: RepairEntry, now: SubscriptionRecord | None) -> RepairOutcome:
    if entry.action is RepairAction.REPORT:
        return RepairOutcome.REPORTED
    if now is None:
        return RepairOutcome.ALREADY if entry.action is RepairAction.REMOVE else RepairOutcome.GONE
    if entry.action is RepairAction.RESUBSCRIBE and not now.notifier_key:
        return RepairOutcome.REPORTED  # nobody can subscribe to a queue of direct notifications
    if _is_done(entry.action, now):
        return RepairOutcome.ALREADY
    return RepairOutcome.APPLY if _is_as_exported(entry, now) else RepairOutcome.CHANGED


def _is_done(action: RepairAction, now: SubscriptionRecord) -> bool:
    match action:
        case RepairAction.RESUBSCRIBE:
            return now.status in _TO_BE_SUBSCRIBED and not now.service_associated
        case RepairAction.RECREATE:
            return not _wanted(subscription_status_text(now.status))
        case _:
            return False


def _is_as_exported(entry: RepairEntry, now: SubscriptionRecord) -> bool:
    """Statuses that change with a connection count as equal."""
    text = subscription_status_text(now.status)
    same = text == entry.status or (_wanted(text) and _wanted(entry.status))
    return same and now.service_associated == entry.associated


def _wanted(status: str) -> bool:
    return status.partition(" ")[0] in WANTED


async def apply_plan(
    store: NtfStore,
    entries: Sequence[RepairEntry],
    events: NtfEvents,
    *,
    now: int,
    dry_run: bool,
    progress: Callable[[int], None] = lambda _: None,
) -> Counter[tuple[RepairAction, RepairOutcome]]:
    """Count the outcomes. Raises ConfigError, before any change, if an entry names no queue."""
    counted: Counter[tuple[RepairAction, RepairOutcome]] = Counter()
    for router, of_router in _by_router(entries).items():
        for start in range(0, len(of_router), BATCH):
            batch = of_router[start : start + BATCH]
            found = await asyncio.gather(
                *(store.subscription_of(NotifierQueue(router, queue)) for queue, _ in batch)
            )
            outcomes = [outcome_of(entry, each) for (_, entry), each in zip(batch, found, strict=True)]
            counted.update((entry.action, each) for (_, entry), each in zip(batch, outcomes, strict=True))
            if not dry_run:
                wanted = [
                    (entry.action, subscription)
                    for (_, entry), subscription, each in zip(batch, found, outcomes, strict=True)
                    if each is RepairOutcome.APPLY and subscription is not None
                ]
                await _apply(store, router, wanted, events, now)
            progress(len(batch))
    return counted


async def _apply(
    store: NtfStore,
    router: RouterLocation,
    wanted: Sequence[tuple[RepairAction, SubscriptionRecord]],
    events: NtfEvents,
    now: int,
) -> None:
    statuses = [
        (subscription.queue.notifier_id, TARGETS[action])
        for action, subscription in wanted
        if action in TARGETS and subscription.notifier_key
    ]
    # As if the SMP router had reported it: they are removed after a while unless it notifies of them.
    deleted = [
        subscription.queue.notifier_id
        for action, subscription in wanted
        if action is RepairAction.RECREATE and not subscription.notifier_key
    ]
    if deleted:
        await store.note_deleted(router, deleted, now)
        events.subscriptions_changed(router, [(each, SubscriptionState.DELETED) for each in deleted], CAUSE)
    if statuses:
        await store.set_statuses(router, statuses)
        events.subscriptions_changed(router, statuses, CAUSE)
    removed = [subscription for action, subscription in wanted if action is RepairAction.REMOVE]
    for subscription in removed:
        await store.delete_subscription(subscription.subscription_id)
    events.subscriptions_changed(router, [(each.queue.notifier_id, None) for each in removed], CAUSE)


def _by_router(entries: Sequence[RepairEntry]) -> dict[RouterLocation, list[tuple[bytes, RepairEntry]]]:
    """Entries with their notifier ids, by router; each queue once."""
    known: dict[str, RouterLocation] = {}
    found: dict[RouterLocation, dict[bytes, RepairEntry]] = defaultdict(dict)
    for entry in entries:
        try:
            if entry.router not in known:
                known[entry.router] = RouterAddress.of(entry.router, Scheme.SMP).location
            found[known[entry.router]][id_of_text(entry.notifier_id)] = entry
        except (DecodeError, ValueError) as error:
            raise ConfigError(
                f"an entry of the plan names no queue: {error}. Nothing was changed: run "
                "`tocsin pipeline reconcile` again"
            ) from None
    return {router: list(queues.items()) for router, queues in found.items()}


@asynccontextmanager
async def offline_events(settings: NtfSettings, instance: str) -> AsyncIterator[NtfEventRecorder]:
    """Record events in a folder of their own, and move them into the event log at the end.

    The router may be running, and a second writer in its folder would publish the router's open segment.
    """
    if settings.event_log is None:
        yield NtfEventRecorder(None, None, instance, NtfLatencies())
        return
    folder = settings.event_log / _OFFLINE_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = keys_folder(settings.event_log, settings.event_log_keys)
    lock = FolderLock(folder / _OFFLINE_LOCK)
    try:
        async with opened_event_log(replace(settings, event_log=folder, event_log_keys=keys)) as opened:
            assert opened is not None
            yield NtfEventRecorder(opened.log, opened.keys, instance, NtfLatencies())
    finally:
        for segment in sorted(folder.glob(PUBLISHED)):
            segment.rename(settings.event_log / segment.name)
        lock.release()
