"""Which notifications are sent, and in which order: the last one of a queue is its newest message's."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doubles.smp_direct import connect_direct, direct_settings
from tests.doubles.smp_harness import (
    OK,
    Asked,
    Notifier,
    Queue,
    SmpHarness,
    SmpTestClient,
    send_command,
    smp_router,
    until,
)
from tests.doubles.smp_process import SmpFolders
from tocsin.durable.log_files import AppendOnlyFile
from tocsin.protocol.direct.smp_responses import NotificationsAcknowledged
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.smp.notifier_commands import AcknowledgeNotifications
from tocsin.protocol.smp.queue_modes import SubscriptionMode
from tocsin.protocol.smp.responses import NotificationReceived

DIRECT: Final = direct_settings()
HOUR: Final = 3600.0


class NtfSide:
    """An NTF router with several connections, some of which it has given up without the SMP router's knowledge.

    In the usual protocol, which has no acknowledgement, it does so without having read what has arrived once at most.
    """

    def __init__(self, router: SmpHarness, *, direct: bool = True) -> None:
        self._router = router
        self._direct = direct
        self._has_lost = False
        self.connections: list[SmpTestClient] = []
        self._read: dict[SmpTestClient, int] = {}
        self.arrived: defaultdict[bytes, list[bytes]] = defaultdict(list)
        """Nonces by notifier id, each once, in the order in which they arrived first."""

    async def subscribe(self, notifiers: Sequence[Notifier]) -> None:
        """Take everything over on a new connection."""
        if self.connections:
            await self._may_lose()
        client = await (connect_direct(self._router) if self._direct else self._router.connect())
        self.connections.append(client)
        self._read[client] = 0
        for notifier in notifiers:
            await client.subscribe_notifier(notifier)

    async def read(self) -> None:
        """Read from the newest connection."""
        for client in self.connections[-1:]:
            assert await client.ask(Ping()) == Pong()
            while client._aside:
                notifier_id, event = await client.event()
                if isinstance(event, NotificationReceived):
                    self._read[client] += 1
                    if event.nonce not in self.arrived[notifier_id]:
                        self.arrived[notifier_id].append(event.nonce)

    async def _may_lose(self) -> None:
        if self._has_lost and not self._direct:
            await self.read()
        self._has_lost = True

    async def acknowledge(self, number: int) -> None:
        """Acknowledge what was read from a connection."""
        if self.connections and self._direct:
            client = self.connections[number % len(self.connections)]
            count = self._read[client]
            if count:
                assert await client.ask(AcknowledgeNotifications(count)) == NotificationsAcknowledged(count)

    async def end(self, number: int, *, reset: bool) -> None:
        if self.connections:
            if reset:
                await self._may_lose()
            elif not self._direct:
                await self.read()
            client = self.connections.pop(number % len(self.connections))
            peer = self._router.peer_of(client)
            client.reset() if reset else client.connection.abort()
            await until(lambda: peer not in self._router.running.router.peers)


@pytest.mark.parametrize("direct", [True, False])
async def test_a_session_that_takes_over_first_gets_what_the_other_one_did_not_acknowledge(
    direct: bool,
) -> None:
    """Without that, the older notification would come last, and replace the newer one at the NTF router."""
    async with smp_router(
        direct=DIRECT, notification_interval=HOUR, notification_confirm_after=HOUR
    ) as router:
        client = await router.connect()
        queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        delivery, ntf = router.running.router.notifications, NtfSide(router, direct=direct)
        for _ in range(2):
            await ntf.subscribe([notifier])
            assert await client.send_message(queue, b"hello", notify=True) == OK
            await delivery.deliver()
        stored = [each.nonce for each in router.store.notifications(notifier.notifier_id)]
        await ntf.read()
        assert ntf.arrived[notifier.notifier_id] == stored
        await ntf.end(0, reset=True)
        await delivery.deliver()
        await ntf.connections[0].nothing()
        await ntf.acknowledge(0)
        await _confirmed(router, direct=direct)


async def _confirmed(router: SmpHarness, *, direct: bool) -> None:
    """Wait until nothing is kept. The peer's system may take a moment to acknowledge what its program has read."""
    while router.store.notifiers_with_notifications():
        await router.running.router.notifications.confirm(patience=None if direct else 0.0)
        await asyncio.sleep(0)


Step: TypeAlias = tuple[str, int]
STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "pass", "pass", "subscribe", "read", "acknowledge", "end", "reset"]),
        st.integers(0, 3),
    ),
    min_size=5,
    max_size=40,
)


@pytest.mark.parametrize("direct", [True, False])
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_notifications_of_a_queue_arrive_in_order_in_every_history(
    direct: bool, steps: Sequence[Step]
) -> None:
    asyncio.run(_live_through(steps, direct=direct))


async def _live_through(steps: Sequence[Step], *, direct: bool) -> None:
    async with smp_router(
        direct=DIRECT, notification_interval=HOUR, notification_confirm_after=HOUR, message_quota=100
    ) as router:
        client = await router.connect()
        queues: list[Queue] = [
            await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY) for _ in range(2)
        ]
        notifiers = [await client.enable_notifications(queue) for queue in queues]
        sent: defaultdict[bytes, list[bytes]] = defaultdict(list)
        delivery, ntf = router.running.router.notifications, NtfSide(router, direct=direct)
        for action, number in [*steps, ("subscribe", 0), ("pass", 0), ("read", 0)]:
            match action:
                case "send":
                    notifier_id = notifiers[number % 2].notifier_id
                    assert await client.send_message(queues[number % 2], b"hello", notify=True) == OK
                    newest = next(iter(router.store.newest_notifications(notifier_id)))
                    sent[notifier_id].append(newest.nonce)
                case "pass":
                    await delivery.deliver()
                case "subscribe":
                    await ntf.subscribe(notifiers)
                case "read":
                    await ntf.read()
                case "acknowledge":
                    await ntf.acknowledge(number)
                case _:
                    await ntf.end(number, reset=action == "reset")
        assert ntf.arrived == sent
        await ntf.acknowledge(len(ntf.connections) - 1)
        await _confirmed(router, direct=direct)
        assert not router.running.state.sent_nonces
        assert not delivery._sent_to


async def test_a_notification_is_not_sent_before_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill would take the message, and its notification would have replaced an older one at the NTF router."""
    written = threading.Event()
    append = AppendOnlyFile.append

    def append_later(file: AppendOnlyFile, lines: bytes) -> None:
        written.wait()
        append(file, lines)

    async with SmpFolders(tmp_path).run(notification_interval=HOUR) as router:
        client, sender, notified = await router.connect(), await router.connect(), await router.connect()
        queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        await notified.subscribe_notifier(notifier)
        assert await client.send_message(queue, b"on disk", notify=True) == OK
        delivery, notifications = router.running.router.notifications, router.store.notifications
        with monkeypatch.context() as slow:
            slow.setattr(AppendOnlyFile, "append", append_later)
            await sender.send(Asked(send_command(b"not yet", notify=True), queue.sender_id, queue.sender_key))
            await until(lambda: len(notifications(notifier.notifier_id)) == 2)
            try:
                await delivery.deliver()
                await notified.notification(notifier)
                await delivery.deliver()
                await notified.nothing()
            finally:
                written.set()
            await sender.block()
        await delivery.deliver()
        await notified.notification(notifier)
