"""Packets of devices that SMP routers forward (SFWD), and keys in answers to devices.

A packet associates a queue with a token, or dissociates it. The token's key signs it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from tocsin.crypto.keys import Ed25519PrivateKey, Ed25519PublicKey, auth_key_from_der
from tocsin.errors import DecodeError, StoreFull
from tocsin.ntf_router.direct.keys import DirectKeys
from tocsin.ntf_router.session.rates import RateLimit, RateTable
from tocsin.ntf_router.session.requests import NtfRequest, NtfState, counts
from tocsin.ntf_router.store.records import Associated, TokenRecord
from tocsin.protocol.direct.ntf_messages import (
    ForwardPacket,
    PacketHandled,
    TokenCheckedWithKey,
    TokenRegisteredWithKey,
)
from tocsin.protocol.direct.packets import (
    PacketFate,
    PacketKind,
    SignedStatement,
    Statement,
    UnknownNtfKey,
    open_packet,
)
from tocsin.protocol.direct.vapid_keys import AskVapidKey, SignedVapidKey
from tocsin.protocol.error_codes import CommandFault
from tocsin.protocol.messages import Response
from tocsin.protocol.ntf.responses import TokenChecked, TokenRegistered
from tocsin.protocol.ntf.statuses import SubscriptionState, TokenState
from tocsin.protocol.router_answers import Refused

MARKS: Final = RateLimit(burst=10_000, interval=10.0)
"""Marks of ended queues that one token may make: as many at once as a device with very many chats needs."""

_DUMMY: Final = Ed25519PrivateKey(b"\x01" * 32).public
_ANSWERS: Final = {
    Associated.ADDED: PacketFate.ACCEPTED,
    Associated.KNOWN: PacketFate.ACCEPTED,
    Associated.NO_TOKEN: PacketFate.BAD_TOKEN,
    Associated.TAKEN: PacketFate.BAD_QUEUE,
    Associated.REMOVED: PacketFate.BAD_QUEUE,
}


class DirectPackets:
    """Executes the packets of SFWD."""

    def __init__(self, state: NtfState, keys: DirectKeys, identity: bytes) -> None:
        self._state = state
        self._keys = keys
        self._identity = identity
        self._marks = RateTable(MARKS)

    async def handle(self, packet: bytes) -> PacketFate:
        """Execute a packet and count its fate. Raises StoreError, after which the SMP router tries again."""
        fate = await self._handle(packet)
        counters = self._state.counters
        counters.direct_packets_accepted += fate is PacketFate.ACCEPTED
        counters.direct_packets_unknown_key += fate is PacketFate.UNKNOWN_KEY
        counters.direct_packets_refused += fate in (PacketFate.BAD_TOKEN, PacketFate.BAD_QUEUE)
        return fate

    async def _handle(self, packet: bytes) -> PacketFate:
        try:
            signed = await self._opened(packet)
        except UnknownNtfKey:
            return PacketFate.UNKNOWN_KEY
        except DecodeError:
            return PacketFate.BAD_TOKEN
        token = await self._state.store.token(signed.statement.token_id)
        if not self._signed_by(token, signed) or token is None:
            return PacketFate.BAD_TOKEN
        if signed.statement.kind is PacketKind.DISSOCIATE:
            return await self._dissociate(token, signed.statement)
        return await self._associate(token, signed.statement)

    async def _opened(self, packet: bytes) -> SignedStatement:
        """Open a packet. In a fleet, another instance may have made its key a moment ago."""
        try:
            return open_packet(packet, self._keys.packet_keys)
        except UnknownNtfKey:
            if not self._state.settings.fleet or not await self._keys.read_again():
                raise
        return open_packet(packet, self._keys.packet_keys)

    def _signed_by(self, token: TokenRecord | None, signed: SignedStatement) -> bool:
        key = None if token is None else auth_key_from_der(token.verify_key)
        if not isinstance(key, Ed25519PublicKey):
            signed.signed_by(_DUMMY, self._identity)
            return False
        return signed.signed_by(key, self._identity)

    async def _associate(self, token: TokenRecord, statement: Statement) -> PacketFate:
        state, queue = self._state, statement.queue
        if not state.subscriber.may_dial(queue):
            return PacketFate.BAD_QUEUE
        limit = state.settings.subscriber.routers_per_token
        others = await state.store.other_routers_of(token.token_id, queue.router)
        if others >= limit or not state.subscriber.may_try(queue.router, token.token_id):
            return PacketFate.BAD_QUEUE
        try:
            result = await state.store.associate(token.token_id, queue, state.clock.now())
        except StoreFull as full:
            state.counters.count_full(full.limit)
            return PacketFate.BAD_QUEUE
        if result is Associated.ADDED:
            state.counters.direct_queues_added += counts(token.device_token.provider)
            self._report(statement, SubscriptionState.ACTIVE)
        if result in (Associated.ADDED, Associated.KNOWN):
            state.subscriber.associated(queue.router, token.token_id)
        return _ANSWERS[result]

    async def _dissociate(self, token: TokenRecord, statement: Statement) -> PacketFate:
        if not await self._state.store.dissociate(token.token_id, statement.queue, self._marked_until(token)):
            return PacketFate.BAD_QUEUE
        self._state.counters.direct_queues_ended += counts(token.device_token.provider)
        self._report(statement, None)
        return PacketFate.ACCEPTED

    def _marked_until(self, token: TokenRecord) -> int | None:
        """Return the time until which the end of a queue is marked, so that no older packet brings it back.

        A mark is kept for weeks, also of queues that never existed. So a token makes marks at a limited rate, and
        only if a device has verified it. Without a mark, an old packet can bring back a queue of this token only.
        """
        now = asyncio.get_running_loop().time()
        if token.status.state is TokenState.ACTIVE and self._marks.take(token.token_id, now):
            return self._keys.last_end
        self._state.counters.direct_marks_left_out += 1
        return None

    def _report(self, statement: Statement, status: SubscriptionState | None) -> None:
        queue = statement.queue
        self._state.events.subscriptions_changed(queue.router, [(queue.notifier_id, status)], "SFWD")


@dataclass(frozen=True, slots=True)
class DirectCommands:
    keys: DirectKeys
    packets: DirectPackets
    vapid: SignedVapidKey | None = None
    """None without Web Push."""

    async def tell_vapid_key(self, _request: NtfRequest[AskVapidKey]) -> Response:
        """VKEY"""
        return self.vapid or Refused(CommandFault.PROHIBITED)

    async def forward(self, request: NtfRequest[ForwardPacket]) -> Response:
        """SFWD"""
        return PacketHandled(await self.packets.handle(request.command.packet))

    async def with_key(self, response: Response) -> Response:
        """Add our newest packet key to answers to TNEW and TCHK. Raises StoreError without a key."""
        match response:
            case TokenRegistered(token_id, dh_key):
                return TokenRegisteredWithKey(token_id, dh_key, await self.keys.newest())
            case TokenChecked(status):
                return TokenCheckedWithKey(status, await self.keys.newest())
        return response
