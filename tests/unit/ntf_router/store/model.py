"""What an NTF store does, as plainly as can be said: dictionaries, and a search where others have an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import xor
from typing import NamedTuple

from tests.unit.ntf_router.store.samples import ACTIVE, CONFIRMED, REGISTERED, pending
from tocsin.ntf_router.store.interface import Replaced
from tocsin.ntf_router.store.records import (
    Accounting,
    LastNotification,
    NotRecorded,
    ReceivedNotification,
    Recorded,
    SettledNotification,
    SubscriptionRecord,
    TokenRecord,
    UsedRouter,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.statuses import SubscriptionState, SubscriptionStatus, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.protocol.smp.service_subscriptions import id_hash, ids_hash_bytes

S = SubscriptionState
WANTED = (S.NEW, S.PENDING, S.ACTIVE, S.INACTIVE, S.SERVICE)
VERIFIABLE = (TokenState.REGISTERED, TokenState.CONFIRMED, TokenState.ACTIVE)


class QueueName(NamedTuple):
    """An SMP router is its key hash, whichever hosts and ports are named."""

    key_hash: bytes
    notifier_id: bytes


def name_of(queue: NotifierQueue) -> QueueName:
    return QueueName(queue.router.key_hash, queue.notifier_id)


class ModelStore:
    def __init__(self) -> None:
        self.tokens: dict[bytes, TokenRecord] = {}
        self.subscriptions: dict[QueueName, SubscriptionRecord] = {}
        self.services: dict[bytes, bytes] = {}
        self.last: dict[QueueName, LastNotification] = {}
        self.ends: Counter[str] = Counter()
        self.received = 0

    # Tokens

    def registration(self, device_token: DeviceToken, verify_key: bytes) -> TokenRecord | None:
        for each in self.tokens.values():
            if (each.device_token, each.verify_key) == (device_token, verify_key):
                return each
        return None

    def add_token(self, token: TokenRecord) -> bool:
        if token.token_id in self.tokens or self.registration(token.device_token, token.verify_key):
            return False
        self.tokens[token.token_id] = token
        return True

    def register_again(self, token_id: bytes, at: int) -> bool:
        token = self.tokens.get(token_id)
        if token is not None and token.status.state not in VERIFIABLE:
            self.tokens[token_id] = replace(token, status=REGISTERED, registered_at=at)
        return token is not None

    def confirm_token(self, token_id: bytes) -> bool:
        token = self.tokens.get(token_id)
        if token is None or token.status in (CONFIRMED, ACTIVE):
            return False
        self.tokens[token_id] = replace(token, status=CONFIRMED)
        return True

    def activate_token(self, token_id: bytes, code: bytes) -> set[NotifierQueue] | None:
        token = self.tokens.get(token_id)
        if token is None or token.code != code or token.status.state not in VERIFIABLE:
            return None
        self.tokens[token_id] = replace(token, status=ACTIVE)
        rivals = [
            each
            for each in self.tokens.values()
            if each.device_token == token.device_token and each.token_id != token_id
        ]
        return {queue for rival in rivals for queue in self.delete_token(rival.token_id) or ()}

    def invalidate_token(self, token_id: bytes, device_token: DeviceToken, status: TokenStatus) -> bool:
        token = self.tokens.get(token_id)
        if token is None or token.device_token != device_token:
            return False
        for queue in self._queues(token_id):
            self._end(queue, "token_invalid")
        self._prune(token_id)
        self.tokens[token_id] = replace(token, status=status)
        return token.status != status

    def replace_token(self, token_id: bytes, device_token: DeviceToken, code: bytes, at: int) -> Replaced:
        token = self.tokens.get(token_id)
        if token is None:
            return Replaced.MISSING
        holder = self.registration(device_token, token.verify_key)
        if holder is not None and holder.token_id != token_id:
            return Replaced.TAKEN
        changed = replace(token, device_token=device_token, code=code, status=REGISTERED, registered_at=at)
        self.tokens[token_id] = changed
        return Replaced.DONE

    def delete_token(self, token_id: bytes) -> set[NotifierQueue] | None:
        if self.tokens.pop(token_id, None) is None:
            return None
        names = self._queues(token_id)
        queues = {self.subscriptions[name].queue for name in names}
        for name in names:
            self._remove(name, "token_removed")
        return queues

    # Subscriptions

    def add_subscription(self, subscription: SubscriptionRecord) -> bool:
        ids = [each.subscription_id for each in self.subscriptions.values()]
        if (
            subscription.token_id not in self.tokens
            or name_of(subscription.queue) in self.subscriptions
            or subscription.subscription_id in ids
        ):
            return False
        self.subscriptions[name_of(subscription.queue)] = subscription
        return True

    def delete_subscription(self, subscription_id: bytes) -> bool:
        for name, each in self.subscriptions.items():
            if each.subscription_id == subscription_id:
                self._remove(name, "subscription_removed")
                return True
        return False

    def set_status(self, queue: QueueName, status: SubscriptionStatus, *, associated: bool) -> int:
        before = self.subscriptions.get(queue)
        if before is None:
            return 0
        after = replace(before, status=status, service_associated=associated)
        self.subscriptions[queue] = after
        return int(before != after)

    def subscribed(self, queue: QueueName, service_id: bytes | None) -> int:
        if service_id is not None and queue.key_hash in {each.key_hash for each in self.subscriptions}:
            self.services[queue.key_hash] = service_id
        return self.set_status(queue, S.ACTIVE, associated=service_id is not None)

    def forget_service(self, router: RouterLocation) -> int:
        self.services.pop(router.key_hash, None)
        count = 0
        for queue, each in self.subscriptions.items():
            if queue.key_hash == router.key_hash and each.service_associated:
                status = S.INACTIVE if each.status in WANTED else each.status
                count += self.set_status(queue, status, associated=False)
        return count

    def used_routers(self) -> dict[bytes, UsedRouter]:
        """By key hash. Their addresses are in the order of their texts."""
        wanted = [each for each in self.subscriptions.values() if each.status in WANTED]
        found = {}
        for router in {each.queue.router.key_hash for each in wanted}:
            here = [each for each in wanted if each.queue.router.key_hash == router]
            first, *others = sorted({each.queue.router for each in here}, key=str)
            ours = [each.queue.notifier_id for each in here if each.service_associated]
            combined = ids_hash_bytes(reduce(xor, map(id_hash, ours), 0))
            untried = router not in self.services and all(
                each.status is S.NEW or each.service_associated for each in here
            )
            active = any(self.tokens[each.token_id].status == ACTIVE for each in here)
            found[router] = UsedRouter(
                first,
                self.services.get(router),
                len(ours),
                combined,
                len(here) - len(ours),
                untried,
                not untried or active,
                tuple(others),
            )
        return found

    # Notifications

    def add_notifications(
        self, router: RouterLocation, block: Sequence[ReceivedNotification]
    ) -> list[Recorded | NotRecorded]:
        """Those of a queue are in order, so everything up to its last known one is known."""
        known = {
            name.notifier_id: last.nonce
            for name, last in self.last.items()
            if name.key_hash == router.key_hash
            and self.tokens[self.subscriptions[name].token_id].status.state in VERIFIABLE
        }
        repeated = {
            each.notifier_id: place
            for place, each in enumerate(block)
            if known.get(each.notifier_id) == each.nonce
        }
        return [
            NotRecorded.DUPLICATE
            if place <= repeated.get(each.notifier_id, -1)
            else self.add_notification(router, each)
            for place, each in enumerate(block)
        ]

    def add_notification(self, router: RouterLocation, came: ReceivedNotification) -> Recorded | NotRecorded:
        queue = QueueName(router.key_hash, came.notifier_id)
        subscription = self.subscriptions.get(queue)
        token = self.tokens[subscription.token_id] if subscription is not None else None
        if token is None or token.status.state not in VERIFIABLE:
            return NotRecorded.UNKNOWN_QUEUE
        before = self.last.get(queue)
        if before is not None and before.nonce == came.nonce:
            return NotRecorded.DUPLICATE
        self.received += 1
        superseded = before if before is not None and before.pending else None
        self.ends["superseded"] += superseded is not None
        self.last.pop(queue, None)
        assert subscription is not None
        self.last[queue] = pending(came, subscription)
        self._prune(token.token_id)
        return Recorded(
            token.token_id,
            token.device_token.provider,
            None if superseded is None else superseded.nonce,
            None if superseded is None else superseded.received_at,
        )

    def settle(self, settled: SettledNotification) -> None:
        name = name_of(settled.queue)
        subscription, last = self.subscriptions.get(name), self.last.get(name)
        if (
            subscription is not None
            and subscription.token_id == settled.token_id
            and last is not None
            and last.nonce == settled.nonce
        ):
            self._end(name, settled.outcome)
            self._prune(settled.token_id)

    def expire_pending(self, before: float) -> int:
        expired = [queue for queue, last in self.last.items() if last.pending and last.received_at < before]
        for queue in expired:
            self._end(queue, "expired")
        for token_id in self.tokens:
            self._prune(token_id)
        return len(expired)

    def due(self, token_id: bytes) -> tuple[LastNotification, ...]:
        mine = self._queues(token_id)
        found = tuple(last for queue, last in self.last.items() if queue in mine)
        active = self.tokens[token_id].status == ACTIVE
        return found if active and any(each.pending for each in found) else ()

    def accounting(self) -> Accounting:
        failed = dict(+self.ends)
        waiting = sum(last.pending for last in self.last.values())
        accepted, superseded = failed.pop("accepted", 0), failed.pop("superseded", 0)
        return Accounting(self.received, accepted, superseded, failed, waiting)

    def _queues(self, token_id: bytes) -> list[QueueName]:
        return [queue for queue, each in self.subscriptions.items() if each.token_id == token_id]

    def _end(self, queue: QueueName, outcome: str) -> None:
        last = self.last.get(queue)
        if last is not None and last.pending:
            self.ends[outcome] += 1
            self.last[queue] = LastNotification(last.received_at, last.nonce, last.text)

    def _remove(self, queue: QueueName, outcome: str) -> None:
        self._end(queue, outcome)
        self.last.pop(queue, None)
        del self.subscriptions[queue]

    def _prune(self, token_id: bytes) -> None:
        mine = self._queues(token_id)
        kept = [(queue, last) for queue, last in self.last.items() if queue in mine]
        spare = len(kept) - 6
        for queue, last in kept:
            if spare > 0 and not last.pending:
                del self.last[queue]
                spare -= 1
