"""The routers of `fake_routers` with direct notifications: packets are really opened, keys turned, things lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar, cast

from tests.doubles.fake_routers import AUTH, FakeNtfClient, FakeSmpClient, FakeWorld, new_dh_key
from tocsin.clients import NtfClient, Request, RouterRefused, SmpClient
from tocsin.crypto.keys import AuthPrivateKey, Ed25519PublicKey, X25519PrivateKey, auth_key_from_der
from tocsin.errors import ConnectFailed
from tocsin.protocol.addresses import RouterAddress
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.packets import PacketFate, PacketKind, UnknownNtfKey, open_packet
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import (
    AssociateQueue,
    CreateNotifyingQueue,
    DisableNotificationsProven,
    NtfSubscription,
    SendPacketAgain,
    SetMinimumPriority,
)
from tocsin.protocol.direct.smp_responses import PacketStatus, QueueAssociated
from tocsin.protocol.error_codes import CommandFault, ErrorCode
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.statuses import TokenState
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.smp.queue_modes import NotifierIds
from tocsin.protocol.smp.responses import QueueCreated

R = TypeVar("R", bound=Response)
PROHIBITED = Refused(CommandFault.PROHIBITED)
KEY_SECONDS = 30 * 86_400


@dataclass
class FakeDirectWorld(FakeWorld):
    identity: bytes = b""
    """Of the NTF router."""
    smp_direct: bool = True
    ntf_direct: bool = True
    keys: dict[bytes, X25519PrivateKey] = field(default_factory=dict)
    waiting: dict[bytes, bytes] = field(default_factory=dict)
    """Packets by notifier id."""
    known: dict[bytes, PacketFate] = field(default_factory=dict)
    """Fates by notifier id."""
    minimums: dict[bytes, MinimumPriority] = field(default_factory=dict)
    associations: dict[bytes, bytes] = field(default_factory=dict)
    """Token ids by notifier id, at the NTF router."""

    def turn_keys(self, now: float) -> None:
        """Those before are erased."""
        key = new_dh_key()
        offer = NtfKeyOffer(key.public, int(now) + KEY_SECONDS)
        self.ntf_key = offer
        self.keys = {offer.key_id: key}

    # SMP

    @asynccontextmanager
    async def connect_smp(self, _address: RouterAddress) -> AsyncIterator[SmpClient]:
        if self.smp_down:
            raise ConnectFailed("the SMP router is down")
        yield cast(SmpClient, FakeDirectSmpClient(self))

    def create_directly(self, wanted: NtfSubscription, corr_id: bytes) -> QueueCreated:
        recipient_id, ids = os.urandom(24), ids_for(corr_id)
        assert wanted.notifier_id == ids.notifier_id
        self.queues[recipient_id] = wanted.notifier_id
        self._keep(wanted)
        notifier = NotifierIds(ids.notifier_id, new_dh_key().public)
        return QueueCreated(recipient_id, ids.sender_id, new_dh_key().public, None, None, None, notifier)

    def at_smp(self, request: Request) -> Response:
        if request.entity_id not in self.queues:
            return AUTH
        present = self.queues[request.entity_id]
        match request.command:
            case AssociateQueue(subscription=wanted, replaced=replaced):
                assert self.smp_direct
                assert request.corr_id is not None
                assert wanted.notifier_id == ids_for(request.corr_id).notifier_id
                self._end(present, replaced)
                self.queues[request.entity_id] = wanted.notifier_id
                self._keep(wanted)
                return QueueAssociated(new_dh_key().public, self._fate(wanted.notifier_id))
            case SendPacketAgain(packet=packet):
                assert self.smp_direct
                if present is None or (present not in self.waiting and present not in self.known):
                    return PROHIBITED
                if packet is not None:
                    self.waiting[present] = packet
                return PacketStatus(self._fate(present))
            case SetMinimumPriority(minimum=minimum):
                assert self.smp_direct
                if present is None:
                    return PROHIBITED
                self.minimums[present] = minimum
                return Done()
            case DisableNotificationsProven(packet=packet):
                self._end(present, packet)
        answer = super().at_smp(request)
        self._end(present, None)
        return answer

    def _keep(self, wanted: NtfSubscription) -> None:
        self.waiting[wanted.notifier_id] = wanted.packet
        self.minimums[wanted.notifier_id] = wanted.minimum

    def _end(self, notifier_id: bytes | None, packet: bytes | None) -> None:
        if notifier_id is not None:
            for kept in (self.waiting, self.known, self.minimums):
                kept.pop(notifier_id, None)
        if packet is not None and not self.ntf_down:
            self._forward(packet)

    def _fate(self, notifier_id: bytes) -> PacketFate:
        """Of the last packet, which is sent now if the NTF router can be reached."""
        if notifier_id in self.waiting:
            if self.ntf_down:
                return PacketFate.PENDING
            self.known[notifier_id] = self._forward(self.waiting.pop(notifier_id))
        return self.known[notifier_id]

    def forget_fates(self) -> None:
        """As an SMP router that restarts: refusals are in its memory only."""
        self.known = {name: fate for name, fate in self.known.items() if fate is PacketFate.ACCEPTED}

    def lose_notifier(self, recipient_id: bytes) -> None:
        self._end(self.queues[recipient_id], None)
        super().lose_notifier(recipient_id)

    # NTF

    @asynccontextmanager
    async def connect_ntf(self, _address: RouterAddress) -> AsyncIterator[NtfClient]:
        if self.ntf_down:
            raise ConnectFailed("the NTF router is down")
        yield cast(NtfClient, FakeNtfClient(self))

    def _forward(self, packet: bytes) -> PacketFate:
        if not self.ntf_direct:
            return PacketFate.UNSUPPORTED
        try:
            signed = open_packet(packet, self.keys)
        except UnknownNtfKey:
            return PacketFate.UNKNOWN_KEY
        statement = signed.statement
        token = self.tokens.get(statement.token_id)
        key = None if token is None else auth_key_from_der(token.key)
        if token is None or not isinstance(key, Ed25519PublicKey) or not signed.signed_by(key, self.identity):
            return PacketFate.BAD_TOKEN
        if statement.kind is PacketKind.DISSOCIATE:
            self.associations.pop(statement.queue.notifier_id, None)
            return PacketFate.ACCEPTED
        if token.state is not TokenState.ACTIVE:
            return PacketFate.BAD_TOKEN
        self.associations[statement.queue.notifier_id] = statement.token_id
        return PacketFate.ACCEPTED


class FakeDirectSmpClient(FakeSmpClient):
    world: FakeDirectWorld

    def __init__(self, world: FakeDirectWorld) -> None:
        super().__init__(world)
        self.direct = world.smp_direct

    def is_down(self) -> bool:
        """Also for those who connected before it was switched."""
        return super().is_down() or self.direct is not self.world.smp_direct

    async def ask(
        self, _expected: type[R], command: CreateNotifyingQueue, *, key: AuthPrivateKey, corr_id: bytes
    ) -> QueueCreated:
        """NEW with a packet."""
        assert command.auth_key == key.public
        assert command.direct is not None
        await asyncio.sleep(0)
        fault = self.world.before(self.is_down())
        created = self.world.create_directly(command.direct, corr_id)
        self.world.after(fault)
        return created

    async def delete_queue(
        self, recipient_id: bytes, _key: AuthPrivateKey, packet: bytes | None = None
    ) -> None:
        await asyncio.sleep(0)
        fault = self.world.before(self.is_down())
        if recipient_id not in self.world.queues:
            raise RouterRefused(ErrorCode.AUTH)
        self.world._end(self.world.queues[recipient_id], packet)
        self.world.lose_notifier(recipient_id)
        del self.world.queues[recipient_id]
        self.world.after(fault)
