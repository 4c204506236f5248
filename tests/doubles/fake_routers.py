"""Both routers as an agent's clients see them, in memory, with faults on demand: for tests of many histories."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import cast

from tocsin.clients import Answer, Event, NtfClient, Request, RouterRefused, SmpClient
from tocsin.crypto.boxes import box_key
from tocsin.crypto.keys import AuthPrivateKey, X25519PrivateKey
from tocsin.errors import ConnectFailed, ConnectionLost, TocsinError
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.ntf_messages import TokenRegisteredWithKey
from tocsin.protocol.direct.packets import PacketFate
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import AssociateQueue, SendPacketAgain, SetMinimumPriority
from tocsin.protocol.direct.smp_responses import PacketStatus, QueueAssociated
from tocsin.protocol.error_codes import ErrorCode, StoreFault
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.pushes import push_json, seal_code
from tocsin.protocol.ntf.responses import QueueSubscribed, SubscriptionChecked, TokenRegistered
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.ntf.subscription_commands import CheckSubscription, SubscribeToQueue
from tocsin.protocol.ntf.token_commands import RegisterToken
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.queue_modes import NotifierIds
from tocsin.protocol.smp.recipient_commands import CreateQueue, DisableNotifications, EnableNotifications
from tocsin.protocol.smp.responses import NotificationsEnabled, QueueCreated

AUTH = Refused(ErrorCode.AUTH)


class Fault(Enum):
    """What happens to a request."""

    LOST = "lost on its way"
    ANSWER_LOST = "done, but the answer is lost"
    STORE = "the router's database fails"
    REFUSED = "refused for good"


@dataclass
class FakeSubscription:
    notifier_id: bytes
    key: bytes
    status: SubscriptionState = SubscriptionState.ACTIVE


@dataclass
class FakeToken:
    device_token: DeviceToken
    key: bytes
    client_dh_key: bytes
    dh_key: X25519PrivateKey
    secret: bytes
    code: bytes
    state: TokenState = TokenState.REGISTERED
    subscriptions: dict[bytes, FakeSubscription] = field(default_factory=dict)


@dataclass
class FakeWorld:
    """One SMP and one NTF router."""

    queues: dict[bytes, bytes | None] = field(default_factory=dict)
    """Notifier ids by recipient id."""
    tokens: dict[bytes, FakeToken] = field(default_factory=dict)
    pushes: deque[bytes] = field(default_factory=deque)
    faults: deque[Fault] = field(default_factory=deque)
    """For the next requests."""
    gate: asyncio.Event | None = None
    """Requests of a batch wait for it, when they have arrived."""
    asked: int = 0
    """Requests of batches so far."""
    broken: set[bytes] = field(default_factory=set)
    """Queues whose commands fail as if the router's database did."""
    smp_down: bool = False
    ntf_down: bool = False
    direct: bool = False
    """Both routers know direct notifications."""
    ntf_key: NtfKeyOffer | None = None
    """What the NTF router gives devices."""
    fates: deque[PacketFate] = field(default_factory=deque)
    """Of the next packets that are sent or asked about; then all are accepted."""
    commands: list[Command] = field(default_factory=list)
    """Of batches at the SMP router."""

    # SMP

    @asynccontextmanager
    async def connect_smp(self, _address: RouterAddress) -> AsyncIterator[SmpClient]:
        if self.smp_down:
            raise ConnectFailed("the SMP router is down")
        yield cast(SmpClient, FakeSmpClient(self))

    def create_queue(self, command: CreateQueue) -> QueueCreated:
        recipient_id = os.urandom(24)
        self.queues[recipient_id] = None if command.notifier is None else os.urandom(24)
        made = self.queues[recipient_id]
        notifier = None if made is None else NotifierIds(made, new_dh_key().public)
        return QueueCreated(recipient_id, os.urandom(24), new_dh_key().public, None, None, None, notifier)

    def at_smp(self, request: Request) -> Response:
        if request.entity_id not in self.queues:
            return AUTH
        self.commands.append(request.command)
        match request.command:
            case SendPacketAgain():
                return PacketStatus(self._next_fate())
            case SetMinimumPriority():
                return Done()
        self._end_notifier(self.queues[request.entity_id])
        if isinstance(request.command, AssociateQueue):
            assert request.corr_id is not None
            made = self.queues[request.entity_id] = request.command.subscription.notifier_id
            assert made == ids_for(request.corr_id).notifier_id
            return QueueAssociated(new_dh_key().public, self._next_fate())
        if isinstance(request.command, EnableNotifications):
            made = self.queues[request.entity_id] = os.urandom(24)
            return NotificationsEnabled(NotifierIds(made, new_dh_key().public))
        assert isinstance(request.command, DisableNotifications)
        self.queues[request.entity_id] = None
        return Done()

    def _next_fate(self) -> PacketFate:
        return self.fates.popleft() if self.fates else PacketFate.ACCEPTED

    def lose_notifier(self, recipient_id: bytes) -> None:
        """As a router that was restored from a backup."""
        self._end_notifier(self.queues[recipient_id])
        self.queues[recipient_id] = None

    def _end_notifier(self, notifier_id: bytes | None) -> None:
        for token in self.tokens.values():
            for subscription in token.subscriptions.values():
                if subscription.notifier_id == notifier_id:
                    subscription.status = SubscriptionState.DELETED

    # NTF

    @asynccontextmanager
    async def connect_ntf(self, _address: RouterAddress) -> AsyncIterator[NtfClient]:
        if self.ntf_down:
            raise ConnectFailed("the NTF router is down")
        yield cast(NtfClient, FakeNtfClient(self))

    def at_ntf(self, request: Request) -> Response:
        assert request.key is not None
        owner = request.key.public.der
        if isinstance(request.command, SubscribeToQueue):
            return self._subscribe(request.command, owner)
        assert isinstance(request.command, CheckSubscription)
        for token in self.tokens.values():
            if token.key == owner and (found := token.subscriptions.get(request.entity_id)):
                return SubscriptionChecked(found.status)
        return AUTH

    def _subscribe(self, command: SubscribeToQueue, owner: bytes) -> Response:
        token = self.tokens.get(command.token_id)
        if token is None or token.key != owner or token.state is not TokenState.ACTIVE:
            return AUTH
        key, notifier_id = command.notifier_key.der, command.queue.notifier_id
        for subscription_id, known in token.subscriptions.items():
            if known.notifier_id == notifier_id:
                return QueueSubscribed(subscription_id) if known.key == key else AUTH
        status = SubscriptionState.ACTIVE if notifier_id in self.queues.values() else SubscriptionState.AUTH
        subscription_id = os.urandom(24)
        token.subscriptions[subscription_id] = FakeSubscription(notifier_id, key, status)
        return QueueSubscribed(subscription_id)

    def register(self, command: RegisterToken) -> TokenRegistered:
        key = command.verify_key.der
        for token_id, token in self.tokens.items():
            if (token.device_token, token.key) == (command.token, key):
                if token.client_dh_key != command.dh_key.der:
                    raise RouterRefused(ErrorCode.AUTH)
                if token.state in (TokenState.INVALID, TokenState.EXPIRED):
                    token.state = TokenState.REGISTERED
                self.send_code(token)
                return TokenRegisteredWithKey(token_id, token.dh_key.public, self.ntf_key)
        token_id, dh_key = os.urandom(24), new_dh_key()
        token = FakeToken(
            command.token, key, command.dh_key.der, dh_key, dh_key.agree(command.dh_key), os.urandom(32)
        )
        self.tokens[token_id] = token
        self.send_code(token)
        return TokenRegisteredWithKey(token_id, dh_key.public, self.ntf_key)

    def send_code(self, token: FakeToken) -> None:
        self.pushes.append(push_json(seal_code(box_key(token.secret), os.urandom(24), token.code)))

    def token(self, token_id: bytes, key: AuthPrivateKey) -> FakeToken:
        token = self.tokens.get(token_id)
        if token is None or token.key != key.public.der:
            raise RouterRefused(ErrorCode.AUTH)
        return token

    def activate(self, token: FakeToken) -> None:
        token.state = TokenState.ACTIVE
        self.tokens = {
            token_id: each
            for token_id, each in self.tokens.items()
            if each is token or each.device_token != token.device_token
        }

    # Faults

    def before(self, down: bool) -> Fault | None:
        """What happens to the next request; raises if it does not arrive."""
        if down:
            raise ConnectionLost("the router went down")
        fault = self.faults.popleft() if self.faults else None
        if fault is Fault.LOST:
            raise ConnectionLost("lost on its way")
        if fault is Fault.STORE:
            raise RouterRefused(StoreFault("trouble"))
        if fault is Fault.REFUSED:
            raise RouterRefused(ErrorCode.QUOTA)
        return fault

    def after(self, fault: Fault | None) -> None:
        if fault is Fault.ANSWER_LOST:
            raise ConnectionLost("the answer is lost")


class FakeClient(ABC):
    """What the two have in common."""

    def __init__(self, world: FakeWorld) -> None:
        self.world = world
        self.session = SimpleNamespace(version=18)
        self.direct = world.direct

    async def events(self) -> AsyncIterator[Event]:
        await asyncio.Event().wait()
        yield Event(b"", Done())

    def probe_when_silent(self) -> None:
        """Do nothing: these connections are never silently lost."""
        return

    async def request_all(self, requests: Iterable[Request]) -> AsyncIterator[Answer]:
        for request in requests:
            await asyncio.sleep(0)
            self.world.asked += 1
            if self.world.gate is not None:
                await self.world.gate.wait()
            try:
                if request.entity_id in self.world.broken:
                    raise RouterRefused(StoreFault("trouble"))
                fault = self.world.before(self.is_down())
                answer = self.perform(request)
                self.world.after(fault)
            except RouterRefused as refused:
                yield Answer(request, Refused(refused.error))
            except TocsinError as error:
                yield Answer(request, error)
            else:
                yield Answer(request, answer)

    @abstractmethod
    def is_down(self) -> bool:
        """Whether the router answers nothing now."""

    @abstractmethod
    def perform(self, request: Request) -> Response:
        """Do what the command asks, and return the answer. Raises RouterRefused or TocsinError."""


class FakeSmpClient(FakeClient):
    def is_down(self) -> bool:
        return self.world.smp_down

    def perform(self, request: Request) -> Response:
        return self.world.at_smp(request)

    async def create_queue(self, command: CreateQueue, _key: AuthPrivateKey) -> QueueCreated:
        await asyncio.sleep(0)
        fault = self.world.before(self.is_down())
        created = self.world.create_queue(command)
        self.world.after(fault)
        return created

    async def delete_queue(
        self, recipient_id: bytes, _key: AuthPrivateKey, _packet: bytes | None = None
    ) -> None:
        await asyncio.sleep(0)
        fault = self.world.before(self.is_down())
        if recipient_id not in self.world.queues:
            raise RouterRefused(ErrorCode.AUTH)
        self.world.lose_notifier(recipient_id)
        del self.world.queues[recipient_id]
        self.world.after(fault)


class FakeNtfClient(FakeClient):
    def is_down(self) -> bool:
        return self.world.ntf_down

    def perform(self, request: Request) -> Response:
        return self.world.at_ntf(request)

    async def register_token(self, command: RegisterToken, _key: AuthPrivateKey) -> TokenRegistered:
        await asyncio.sleep(0)
        fault = self.world.before(self.is_down())
        registered = self.world.register(command)
        self.world.after(fault)
        return registered

    async def verify_token(self, token_id: bytes, code: bytes, key: AuthPrivateKey) -> None:
        await asyncio.sleep(0)
        fault = self.world.before(self.is_down())
        token = self.world.token(token_id, key)
        if token.code != code or token.state in (TokenState.INVALID, TokenState.EXPIRED):
            raise RouterRefused(ErrorCode.AUTH)
        self.world.activate(token)
        self.world.after(fault)

    async def check_token_with_key(
        self, token_id: bytes, key: AuthPrivateKey
    ) -> tuple[TokenStatus, NtfKeyOffer | None]:
        await asyncio.sleep(0)
        fault = self.world.before(self.is_down())
        status = TokenStatus(self.world.token(token_id, key).state)
        self.world.after(fault)
        return status, self.world.ntf_key

    async def replace_token(self, token_id: bytes, device_token: DeviceToken, key: AuthPrivateKey) -> None:
        await asyncio.sleep(0)
        fault = self.world.before(self.is_down())
        token = self.world.token(token_id, key)
        others = [each for each in self.world.tokens.values() if each is not token]
        if any((each.device_token, each.key) == (device_token, token.key) for each in others):
            raise RouterRefused(StoreFault("taken"))
        token.device_token, token.code = device_token, os.urandom(32)
        token.state = TokenState.REGISTERED
        self.world.send_code(token)
        self.world.after(fault)

    async def delete_token(self, token_id: bytes, key: AuthPrivateKey) -> None:
        await asyncio.sleep(0)
        fault = self.world.before(self.is_down())
        self.world.token(token_id, key)
        del self.world.tokens[token_id]
        self.world.after(fault)

    async def set_periodic_push(self, token_id: bytes, _minutes: int, key: AuthPrivateKey) -> None:
        await asyncio.sleep(0)
        self.world.before(self.is_down())
        self.world.token(token_id, key)


def new_dh_key() -> X25519PrivateKey:
    return X25519PrivateKey(os.urandom(32))
