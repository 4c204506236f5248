"""Which notifications are sent, and in which order: the last one of a queue is its newest message's."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.doubles.smp_direct import connect_direct, direct_settings
from tests.doubles.smp_harness import (
    OK,
    Asked,
    Notifier,
    Queue,
    Received,
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

    In the usual protocol, which has no acknowledgement, it reads everything from all connections but one. It resets
    that one sooner or later, because it cannot use what has arrived.
    """

    def __init__(self, router: SmpHarness, *, direct: bool = True) -> None:
        self._router = router
        self._direct = direct
        self._unread: SmpTestClient | None = None
        """The connection that it has left, or resets, without reading everything."""
        self.connections: list[SmpTestClient] = []
        self._read: dict[SmpTestClient, int] = {}
        self._blocks: list[list[Received]] = []
        self.arrived: defaultdict[bytes, list[bytes]] = defaultdict(list)
        """Nonces by notifier id that are not repeated, in the order of their arrival."""

    async def subscribe(self, notifiers: Sequence[Notifier]) -> None:
        """Take everything over on a new connection."""
        if self._direct or not self.connections:
            pass
        elif self._unread is None:
            self._unread = self.connections[-1]
        else:
            await self.read()
        client = await (connect_direct(self._router) if self._direct else self._router.connect())
        self.connections.append(client)
        self._read[client] = 0
        for notifier in notifiers:
            await client.subscribe_notifier(notifier)
        self._note_blocks(client)

    def _note_blocks(self, client: SmpTestClient) -> None:
        """Note which events come in one block."""
        read = client._read

        async def noted() -> list[Received]:
            self._blocks.append(await read())
            return self._blocks[-1]

        client._read = noted  # type: ignore[method-assign]

    async def read(self) -> None:
        """Read from the newest connection. Within a block, what comes before something known has come before."""
        for client in self.connections[-1:]:
            assert await client.ask(Ping()) == Pong()
            came = client.events()
            for block in self._blocks:
                nonces: defaultdict[bytes, list[bytes]] = defaultdict(list)
                for each in block:
                    if any(each is one for one in came) and isinstance(each.response, NotificationReceived):
                        nonces[each.entity_id].append(each.response.nonce)
                        self._read[client] += 1
                for notifier_id, of_queue in nonces.items():
                    arrived = self.arrived[notifier_id]
                    known = [place for place, nonce in enumerate(of_queue) if nonce in arrived]
                    arrived += of_queue[known[-1] + 1 if known else 0 :]

    async def acknowledge(self, number: int) -> None:
        """Acknowledge what was read from a connection."""
        if self.connections and self._direct:
            client = self.connections[number % len(self.connections)]
            count = self._read[client]
            if count:
                assert await client.ask(AcknowledgeNotifications(count)) == NotificationsAcknowledged(count)

    async def end(self, number: int, *, reset: bool) -> None:
        if self.connections:
            client = self.connections[number % len(self.connections)]
            if self._direct or client is self._unread:
                pass
            elif reset and self._unread is None and client is self.connections[-1]:
                self._unread = client
            else:
                await self.read()
            await self._end(client, reset=reset or client is self._unread)

    async def _end(self, client: SmpTestClient, *, reset: bool) -> None:
        peer = self._router.peer_of(client)
        self.connections.remove(client)
        client.reset() if reset else client.connection.abort()
        await until(lambda: peer not in self._router.running.router.peers)

    async def end_unread(self) -> None:
        if self._unread in self.connections:
            await self._end(self._unread, reset=True)


async def test_a_session_that_takes_over_first_gets_what_the_other_one_did_not_acknowledge() -> None:
    """Without that, the older notification would come last, and replace the newer one at the NTF router."""
    async with smp_router(direct=DIRECT, notification_interval=HOUR) as router:
        client = await router.connect()
        queue = await client.secured_queue(subscription=SubscriptionMode.CREATE_ONLY)
        notifier = await client.enable_notifications(queue)
        delivery, ntf = router.running.router.notifications, NtfSide(router)
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
        await delivery.confirm()
        assert not router.store.notifiers_with_notifications()


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
@example(
    steps=[(each, 0) for each in ("subscribe", "send", "pass", "subscribe", "send", "pass", "reset", "pass")]
)
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
        for action, number in [*steps, ("subscribe", 0), ("end unread", 0), ("pass", 0), ("read", 0)]:
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
                case "end unread":
                    await ntf.end_unread()
                case _:
                    await ntf.end(number, reset=action == "reset")
        for notifier in notifiers:
            arrived, of_queue = ntf.arrived[notifier.notifier_id], sent[notifier.notifier_id]
            assert arrived[-1:] == of_queue[-1:]
            assert arrived == [each for each in of_queue if each in arrived]
            if direct:
                assert arrived == of_queue
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
