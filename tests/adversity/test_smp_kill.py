"""kill -9 of a router under load, again and again on one store: what was acknowledged stays, what was deleted is gone.

`Expected` says what may be in the store: what was answered is certain; a command without an answer, because the kill
came first, may have happened or not. Each life of the router begins with a comparison, which ends some of these
doubts, and ends with a kill while four connections send, two receive, acknowledge, make, delete and give notifiers to
queues, one is notified, and an operator saves.

TOCSIN_KILLS sets how many lives on logs end under load, TOCSIN_POSTGRES_KILLS how many on a database, and
TOCSIN_KILL_SEED what is decided by chance in them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.smp_harness import AUTH, OK, Notifier, Queue, SmpTestClient, ed25519
from tests.doubles.smp_process import ControlClient, SmpFolders, SmpProcess
from tocsin.errors import ConnectionLost
from tocsin.protocol.messages import Response
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications
from tocsin.protocol.smp.recipient_commands import (
    AcknowledgeMessage,
    DeleteQueue,
    InspectQueue,
    SecureQueue,
    Subscribe,
)
from tocsin.protocol.smp.responses import (
    MessageReceived,
    NotificationReceived,
    QueueInspected,
    Subscribed,
)

KILLS = int(os.environ.get("TOCSIN_KILLS", "15"))
POSTGRES_KILLS = int(os.environ.get("TOCSIN_POSTGRES_KILLS", "5"))
SEED = os.environ.get("TOCSIN_KILL_SEED", "tocsin")
SENDERS, RECIPIENTS = 4, 2
MOST_QUEUES = 12
SHORTEST, LONGEST = 0.05, 0.3
"""Seconds of traffic before a kill."""
SETTINGS: dict[str, Any] = {"message_quota": 100_000}
STATISTICS = "smp-server-stats.log"


@dataclass
class Sent:
    """A message that may be in a queue."""

    body: bytes
    notifier: Notifier | None
    """Who must be notified of it."""
    sent: bool = False
    """Its SEND was answered."""
    acknowledging: bool = False
    """An ACK was sent, and not answered yet."""

    @property
    def is_certain(self) -> bool:
        return self.sent and not self.acknowledging


@dataclass
class Expected:
    """One queue, as far as its users can know."""

    queue: Queue
    recipient: int
    """Which of the recipients' connections has it."""
    messages: list[Sent] = field(default_factory=list)
    """In the order of sending."""
    busy: bool = False
    """A SEND is under way: the order of two at a time would be anybody's guess."""
    securing: bool = False
    deleting: bool = False
    notifier: Notifier | None = None
    replacing_notifier: bool = False
    head: MessageReceived | None = None
    """What was delivered in this life and not acknowledged."""

    def delivered(self, message: MessageReceived) -> bytes:
        """Checks that it is this message's turn; returns its body."""
        body = self.queue.body(message)
        places = [place for place, each in enumerate(self.messages) if each.body == body]
        assert places, f"{body!r} was delivered again after its ACK, or was never sent"
        skipped = self.messages[: places[0]]
        lost = [each.body for each in skipped if each.is_certain]
        assert not lost, f"{lost} should have been delivered before {body!r}"
        del self.messages[: places[0]]
        self.messages[0].sent = True
        self.messages[0].acknowledging = False
        self.head = message
        return body


class World:
    """Everything that was ever done to the store of one folder."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.queues: list[Expected] = []
        self.deleted: list[Queue] = []
        self.gone_notifiers: list[Notifier] = []
        self.bodies: dict[bytes, bytes] = {}
        """By message id."""
        self.to_notify: list[tuple[Expected, Sent]] = []
        self.notified: dict[bytes, bytes] = {}
        """Nonces, by message id."""
        self.answered = 0
        self._made = 0

    def next_body(self) -> bytes:
        self._made += 1
        return b"%d %s" % (
            self._made,
            bytes(self.chance.choices(b"abc", k=self.chance.choice([5, 300, 15_000]))),
        )

    def take_event(self, entity_id: bytes, event: Response) -> None:
        if isinstance(event, NotificationReceived):
            self._take_notification(entity_id, event)
            return
        owner = self.by_recipient_id(entity_id)
        if owner is None or owner.deleting:
            return
        assert isinstance(event, MessageReceived), event
        self.bodies[event.message_id] = owner.delivered(event)

    def _take_notification(self, notifier_id: bytes, event: NotificationReceived) -> None:
        known = [each.notifier for each in self.queues if each.notifier]
        for notifier in [*known, *self.gone_notifiers]:
            if notifier.notifier_id == notifier_id:
                message_id = notifier.meta(event).message_id
                nonce = self.notified.setdefault(message_id, event.nonce)
                assert nonce == event.nonce, "a notification came again with another nonce"
                return

    def by_recipient_id(self, recipient_id: bytes) -> Expected | None:
        return next((each for each in self.queues if each.queue.recipient_id == recipient_id), None)

    def missing_notifications(self) -> list[bytes]:
        """Bodies of messages whose notification is due and did not come."""
        message_ids = {body: message_id for message_id, body in self.bodies.items()}
        return [
            sent.body
            for owner, sent in self.to_notify
            if owner.notifier is sent.notifier
            and not owner.replacing_notifier
            and not owner.deleting
            and message_ids.get(sent.body) not in self.notified
        ]


@dataclass
class Life:
    """One run of the router."""

    world: World
    router: SmpProcess
    senders: list[SmpTestClient]
    recipients: list[SmpTestClient]
    notifier: SmpTestClient
    notifier_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_over: bool = False

    async def events(self, client: SmpTestClient, seconds: float) -> None:
        """Takes what comes in this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self.world.take_event(*await client.event())

    # Comparison, without anything else going on

    async def compare(self) -> None:
        for owner in list(self.world.queues):
            await self._compare_queue(owner)
        for queue in self.world.deleted:
            await self._is_gone(queue)
        for notifier in self.world.gone_notifiers[-5:]:
            assert await self._subscribe_notifier(notifier) == AUTH, "a replaced notifier is back"

    async def _compare_queue(self, owner: Expected) -> None:
        world, queue, client = self.world, owner.queue, self.recipients[owner.recipient]
        owner.head = None
        answer = await client.ask(Subscribe(), queue.recipient_id, queue.key)
        if owner.deleting:
            world.queues.remove(owner)
            if isinstance(answer, Subscribed):
                assert await client.ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
            world.deleted.append(queue)
            await self._is_gone(queue)
            return
        assert isinstance(answer, Subscribed), f"an acknowledged queue is gone: {answer}"
        if owner.securing:
            await self.secure(owner)
        if owner.replacing_notifier:
            await self.give_notifier(owner)
        elif owner.notifier is not None:
            answer = await self._subscribe_notifier(owner.notifier)
            assert isinstance(answer, Subscribed), f"an acknowledged notifier is gone: {answer}"
        info = await client.expect(QueueInspected, InspectQueue(), queue.recipient_id, queue.key)
        size = json.loads(info.json)["qiSize"]
        certain = sum(each.is_certain for each in owner.messages)
        assert certain <= size <= len(owner.messages), f"{size} messages, {certain} are certain"
        if size:
            await self._until_delivered(owner)
        if world.chance.random() < 0.3:
            await self.drain(owner)

    async def _until_delivered(self, owner: Expected) -> None:
        """Messages of other queues may come first."""
        while owner.head is None:
            self.world.take_event(*await self.recipients[owner.recipient].event())

    async def drain(self, owner: Expected) -> None:
        """Receives and acknowledges everything; nobody sends."""
        while owner.head is not None:
            await self.acknowledge(owner)
        assert not [each for each in owner.messages if each.is_certain], "acknowledged messages are missing"
        owner.messages.clear()

    async def _is_gone(self, queue: Queue) -> None:
        client = self.recipients[0]
        answer = await client.ask(Subscribe(), queue.recipient_id, queue.key)
        assert answer == AUTH, "an acknowledged deletion is undone"
        assert await client.send_message(queue, b"to nobody") == AUTH

    async def _subscribe_notifier(self, notifier: Notifier) -> Response:
        async with self.notifier_lock:
            return await self.notifier.ask(SubscribeNotifications(), notifier.notifier_id, notifier.key)

    # Commands. Doubts begin when they are sent and end when they are answered.

    async def new_queue(self, recipient: int) -> None:
        client = self.recipients[recipient]
        owner = Expected(await client.new_queue(), recipient)
        owner.busy = True
        self.world.queues.append(owner)
        if self.world.chance.random() < 0.7:
            await self.secure(owner)
        if self.world.chance.random() < 0.7:
            await self.give_notifier(owner)
        owner.busy = False

    async def secure(self, owner: Expected) -> None:
        if not owner.securing:
            owner.securing = True
            owner.queue = replace(owner.queue, sender_key=ed25519())
        queue = owner.queue
        assert queue.sender_key is not None
        client = self.recipients[owner.recipient]
        assert await client.ask(SecureQueue(queue.sender_key.public), queue.recipient_id, queue.key) == OK
        owner.securing = False

    async def give_notifier(self, owner: Expected) -> None:
        """NKEY, then NSUB with the new id."""
        owner.replacing_notifier = True
        old = owner.notifier
        new = await self.recipients[owner.recipient].enable_notifications(owner.queue)
        owner.notifier, owner.replacing_notifier = new, False
        if old is not None:
            self.world.gone_notifiers.append(old)
        assert isinstance(await self._subscribe_notifier(new), Subscribed)

    async def delete(self, owner: Expected) -> None:
        owner.deleting = True
        queue = owner.queue
        assert await self.recipients[owner.recipient].ask(DeleteQueue(), queue.recipient_id, queue.key) == OK
        self.world.queues.remove(owner)
        self.world.deleted.append(queue)

    async def acknowledge(self, owner: Expected) -> None:
        assert owner.head is not None
        queue, message, owner.head = owner.queue, owner.head, None
        acknowledged = owner.messages[0]
        acknowledged.acknowledging = True
        command = AcknowledgeMessage(message.message_id)
        answer = await self.recipients[owner.recipient].ask(command, queue.recipient_id, queue.key)
        owner.messages.remove(acknowledged)
        if answer != OK:
            self.world.take_event(queue.recipient_id, answer)

    async def send(self, client: SmpTestClient, owner: Expected) -> None:
        notify = self.world.chance.random() < 0.5
        notifier = owner.notifier if notify and not owner.replacing_notifier else None
        message = Sent(self.world.next_body(), notifier)
        owner.busy = True
        owner.messages.append(message)
        answer = await client.send_message(owner.queue, message.body, notify=notify)
        owner.busy = False
        if owner.deleting:
            return
        assert answer == OK
        message.sent = True
        self.world.answered += 1
        if notifier is not None:
            self.world.to_notify.append((owner, message))

    # Traffic

    async def sending(self, client: SmpTestClient) -> None:
        while not self.is_over:
            free = [each for each in self.world.queues if not (each.busy or each.securing or each.deleting)]
            if free:
                await self.send(client, self.world.chance.choice(free))
            else:
                await asyncio.sleep(0.005)

    async def receiving(self, recipient: int) -> None:
        chance = self.world.chance
        while True:
            await self.events(self.recipients[recipient], 0.002)
            mine = [each for each in self.world.queues if each.recipient == recipient and not each.deleting]
            idle = [each for each in mine if not each.busy]
            dice = chance.random()
            if dice < 0.1 and len(self.world.queues) < MOST_QUEUES:
                await self.new_queue(recipient)
            elif dice < 0.15 and idle and len(self.world.queues) > 4:
                await self.delete(chance.choice(idle))
            elif dice < 0.25 and idle:
                await self.give_notifier(chance.choice(idle))
            else:
                for owner in mine:
                    if owner.head is not None and not owner.deleting:
                        await self.acknowledge(owner)

    async def being_notified(self) -> None:
        while True:
            async with self.notifier_lock:
                await self.events(self.notifier, 0.005)
            await asyncio.sleep(0)

    async def saving(self) -> None:
        """The operator writes snapshots, which replace the log of changes."""
        operator = await ControlClient.connect(self.router.control_port)
        try:
            while (answer := await operator.ask("save")) != "":
                assert answer == "server state saved!"
                await asyncio.sleep(self.world.chance.uniform(0, 0.1))
        finally:
            await operator.close()

    async def until_killed(self, after: float, kill: Callable[[SmpProcess], Awaitable[None]]) -> None:
        """Traffic, and in the middle of it the kill, which ends all connections."""
        tasks = [
            *(self.sending(client) for client in self.senders),
            *(self.receiving(recipient) for recipient in range(RECIPIENTS)),
            self.being_notified(),
            self.saving(),
        ]
        running = [asyncio.create_task(self._until_lost(task)) for task in tasks]
        await asyncio.sleep(after)
        await kill(self.router)
        self.is_over = True
        await asyncio.gather(*running)
        for client in [*self.recipients, self.notifier]:
            with suppress(ConnectionLost):  # what was on the way when the router died
                await self.events(client, 1.0)

    async def _until_lost(self, work: Coroutine[None, None, None]) -> None:
        with suppress(ConnectionLost, ConnectionError):
            await work


@asynccontextmanager
async def life(world: World, folders: SmpFolders, settings: dict[str, Any]) -> AsyncIterator[Life]:
    router = await folders.start(**settings)
    try:
        clients = [await router.connect() for _ in range(SENDERS + RECIPIENTS + 1)]
        recipients = clients[SENDERS : SENDERS + RECIPIENTS]
        yield Life(world, router, clients[:SENDERS], recipients, clients[-1])
    finally:
        for client in router.clients:
            client.connection.abort()
        await router.kill()


async def kill_again_and_again(
    folders: SmpFolders,
    settings: dict[str, Any],
    kills: int,
    kill: Callable[[SmpProcess], Awaitable[None]] = SmpProcess.kill,
) -> None:
    chance = random.Random(SEED)
    world = World(chance)

    def enough() -> bool:
        """Chance decides what happens between two kills, and a loaded machine does little."""
        return world.answered > 10 * kills and len(world.deleted) >= kills // 10

    for number in takewhile(lambda number: number < kills or not enough(), range(4 * kills)):
        if number % 8 == 7:  # also while the store is being read and rewritten
            process = await folders.spawn(**settings)
            await asyncio.sleep(chance.uniform(0.2, 0.8))
            process.kill()
            await process.communicate()
        async with life(world, folders, settings) as current:
            await current.compare()
            await current.until_killed(chance.uniform(SHORTEST, LONGEST), kill)
        for owner in world.queues:
            owner.busy = False
    async with life(world, folders, settings) as last:
        await last.compare()
        for owner in list(world.queues):
            await last.drain(owner)
        for _ in range(10):
            await last.events(last.notifier, 0.5)
            if not world.missing_notifications():
                break
        assert world.missing_notifications() == []
        assert await last.router.stop() == 0
    assert world.answered > 10 * kills, "too little was going on"
    assert len(world.deleted) >= kills // 10
    print(f"{world.answered} messages, {len(world.deleted)} deletions, {len(world.notified)} notifications")


@pytest.mark.timeout(240)
async def test_what_was_acknowledged_survives_every_kill(tmp_path: Path) -> None:
    await kill_again_and_again(SmpFolders(tmp_path), SETTINGS, KILLS)


@pytest.mark.timeout(240)
async def test_what_was_acknowledged_survives_every_kill_on_a_database(tmp_path: Path, url: str) -> None:
    folders = SmpFolders(tmp_path)
    await kill_again_and_again(folders, SETTINGS | {"database_url": url}, POSTGRES_KILLS)
    assert not any(
        name.endswith(".log") for name in folders.names() - {STATISTICS}
    )  # all of it was in the database
