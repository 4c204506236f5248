"""Both sides of forwarding: senders reach other routers without showing their address (smp.md 6.7).

One connection per relay serves all clients (`relays.py`).
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Any, Final

from tocsin.clients import RouterRefused
from tocsin.crypto.boxes import box_key
from tocsin.errors import (
    BadBox,
    ClientError,
    DecodeError,
    LocalProtocolError,
    RemoteProtocolError,
    ResponseTimeout,
    TransportError,
)
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.error_codes import (
    BrokerFault,
    CommandFault,
    ErrorCode,
    NetworkFault,
    ProxyBroker,
    ProxyFault,
    ProxyProtocol,
    RouterError,
    TransportFault,
)
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import BlockCoder, ReceivedCommand, RefusedCommand, RouterSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded, RequestProxySession
from tocsin.protocol.smp.proxying import (
    RelayAnswerEnvelope,
    RelayEnvelope,
    seal_forwarded_answer,
    unseal_forwarded,
)
from tocsin.protocol.smp.responses import ForwardedAnswer, ProxySession, RelayAnswer
from tocsin.protocol.smp.sender_commands import (
    GetLinkData,
    SecureLinkedQueue,
    SecureQueueBySender,
    SendMessage,
)
from tocsin.protocol.smp.versions import PROXIED
from tocsin.smp_router.proxy.relays import Relay, RelayFailure, Relays
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import SmpRequest, SmpState
from tocsin.smp_router.session.verification import verify


class Proxy:
    """PRXY and PFWD."""

    def __init__(self, state: SmpState) -> None:
        self._state = state
        self._settings = state.settings.proxy
        self.relays = Relays(self._settings, state.counters)

    async def request_session(self, request: SmpRequest[RequestProxySession]) -> Response:
        """PRXY"""
        command = request.command
        if not self._settings.enabled or not self._password_fits(command.password):
            return Refused(ProxyFault.BASIC_AUTH)
        self._state.counters.proxy_requests += 1
        found = await self._find(request.peer, command.relay)
        if isinstance(found, RelayFailure):
            self._state.counters.proxy_connect_errors += 1
            return Refused(ProxyBroker(found.fault))
        self._state.counters.proxy_requests_own += found.own
        versions = PROXIED.common(found.proof.versions)
        if versions is None:
            return Refused(ProxyBroker(TransportFault.VERSION))
        return ProxySession(found.client.session.session_id, versions, found.proof.certificate_key)

    async def _find(self, peer: Peer, location: RouterLocation) -> Relay | RelayFailure:
        """Connect to the relay if needed. A client that names many relays waits for its own, and delays no other."""
        if self.relays.is_known(location):
            return await self.relays.find(location)
        if peer.relay_places is None:
            peer.relay_places = asyncio.Semaphore(self._settings.client_connects)
        async with peer.relay_places:
            return await self.relays.find(location)

    async def forward(self, request: SmpRequest[ForwardToRelay]) -> Response:
        """PFWD"""
        command = request.command
        relay = self.relays.with_session(request.entity_id)
        if relay is None:
            return Refused(ProxyFault.NO_SESSION)
        self._state.counters.proxy_forwards += 1
        self._state.counters.proxy_forwards_own += relay.own
        nonce = self._state.randomness.new_id()
        envelope = RelayEnvelope(request.corr_id, command.version, command.client_key, command.transmission)
        sealed = RelayForwarded(envelope.seal(relay.proof.forwarding_key, nonce))
        try:
            with relay.in_use() as client:
                answer = await client.request(sealed, corr_id=nonce, timeout=self._settings.response_timeout)
        except RouterRefused as refusal:
            return self._failed(ProxyProtocol(refusal.error))
        except ResponseTimeout:
            return self._failed(ProxyBroker(BrokerFault.TIMEOUT))
        except LocalProtocolError:  # our envelope makes it longer than the received block
            return self._failed(ProxyBroker(TransportFault.LARGE_MSG))
        except RemoteProtocolError:
            return self._failed(ProxyBroker(TransportFault.BLOCK))
        except (TransportError, ClientError):
            return self._failed(ProxyBroker(NetworkFault()))
        return _opened(answer, relay, nonce, request.corr_id)

    def _failed(self, error: RouterError) -> Refused:
        self._state.counters.proxy_forward_errors += 1
        return Refused(error)

    def _password_fits(self, given: bytes | None) -> bool:
        needed = self._state.settings.create_password
        return needed is None or (given is not None and hmac.compare_digest(needed.encode(), given))


def _opened(answer: Response, relay: Relay, nonce: bytes, corr_id: bytes) -> Response:
    if not isinstance(answer, RelayAnswer):
        return Refused(ProxyBroker(NetworkFault()))
    try:
        opened = RelayAnswerEnvelope.unseal(relay.proof.forwarding_key, nonce, answer.envelope)
    except (BadBox, DecodeError):
        return Refused(ProxyBroker(TransportFault.BLOCK))
    if opened.corr_id != corr_id:  # an answer to another command; it might not even fit our block
        return Refused(ProxyBroker(TransportFault.BLOCK))
    return ForwardedAnswer(opened.transmission)


FORWARDED: Final = (SendMessage, SecureQueueBySender, SecureLinkedQueue, GetLinkData)


class RelayCommands:
    """Executes RFWD, the relay side of forwarding."""

    def __init__(self, state: SmpState, execute: Callable[[SmpRequest[Any]], Response]) -> None:
        self._state = state
        self._execute = execute

    def relay(self, request: SmpRequest[RelayForwarded]) -> Response:
        """RFWD: open both envelopes, execute the command, seal its answer twice."""
        command, session = request.command, request.session
        if session.forwarding_key is None or session.session_key is None:
            return Refused(ErrorCode.CRYPTO)
        try:
            envelope = RelayEnvelope.unseal(session.forwarding_key, request.corr_id, command.envelope)
        except BadBox:
            return Refused(ErrorCode.CRYPTO)
        except DecodeError:
            return Refused(CommandFault.SYNTAX)
        if envelope.version not in SMP.supported:
            return Refused(CommandFault.SYNTAX)
        key = box_key(session.session_key.agree(envelope.client_key))
        try:
            transmission = unseal_forwarded(key, envelope.corr_id, envelope.transmission)
        except BadBox:
            return Refused(ErrorCode.CRYPTO)
        except DecodeError:
            return Refused(ErrorCode.BLOCK)
        inner = RouterSession(
            SMP, envelope.version, session.session_id, BlockCoder(SMP.block_size), session.session_key
        )
        answer = seal_forwarded_answer(key, envelope.corr_id, self._run(request, inner, transmission))
        sealed = RelayAnswerEnvelope(envelope.corr_id, answer).seal(session.forwarding_key, request.corr_id)
        self._state.counters.relayed_commands += 1
        return RelayAnswer(sealed)

    def _run(self, outer: SmpRequest[RelayForwarded], session: RouterSession, transmission: bytes) -> bytes:
        received = session.read_transmission(transmission)
        response = self._respond(outer, session, received)
        return session.response(received.corr_id, received.entity_id, response)

    def _respond(
        self,
        outer: SmpRequest[RelayForwarded],
        session: RouterSession,
        received: ReceivedCommand | RefusedCommand,
    ) -> Response:
        if isinstance(received, RefusedCommand):
            return Refused(received.error)
        if not isinstance(received.command, FORWARDED):
            return Refused(CommandFault.PROHIBITED)
        verified = verify(self._state.store, outer.peer, session, received)
        if not isinstance(verified, SmpRequest):
            return Refused(verified)
        response = self._execute(verified)
        outer.effects += verified.effects
        return response
