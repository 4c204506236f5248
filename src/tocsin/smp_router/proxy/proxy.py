"""Both sides of forwarding: senders reach other routers without showing their address (smp.md 6.7).

One connection per relay serves all clients (`relays.py`).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
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
    AnyBrokerFault,
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
from tocsin.protocol.smp.names import ResolveName
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded, RequestProxySession
from tocsin.protocol.smp.proxying import RelayAnswerEnvelope, RelayEnvelope, unseal_forwarded
from tocsin.protocol.smp.responses import ForwardedAnswer, ProxySession, RelayAnswer
from tocsin.protocol.smp.sender_commands import (
    GetLinkData,
    SecureLinkedQueue,
    SecureQueueBySender,
    SendMessage,
)
from tocsin.protocol.smp.versions import proxied
from tocsin.smp_router.names.name_commands import NameCommands
from tocsin.smp_router.proxy.relays import Relay, RelayFailure, Relays
from tocsin.smp_router.session.peers import Peer
from tocsin.smp_router.session.requests import RelayedCommand, SmpRequest, SmpState
from tocsin.smp_router.session.verification import verify
from tocsin.smp_router.statistics.counters import RelayCount, count_refusal

logger = logging.getLogger(__name__)

_SESSION_ERRORS: Final[dict[AnyBrokerFault, RelayCount]] = {
    NetworkFault(): "proxy_connect_errors",
    TransportFault.VERSION: "proxy_version_errors",
}
"""Counters of failed PRXY; all others are counted together."""


class Proxy:
    """PRXY and PFWD."""

    def __init__(self, state: SmpState) -> None:
        self._state = state
        self._settings = state.settings.proxy
        self._versions = proxied(state.settings.highest_version)
        self.relays = Relays(self._settings, state.counters)

    async def request_session(self, request: SmpRequest[RequestProxySession]) -> Response:
        """PRXY"""
        command = request.command
        if not self._settings.enabled or not self._password_fits(command.password):
            return Refused(ProxyFault.BASIC_AUTH)
        counters, own = self._state.counters, self.relays.is_own(command.relay)
        counters.count_relay("proxy_requests", own=own)
        found = await self._find(request.peer, command.relay)
        versions = None if isinstance(found, RelayFailure) else self._versions.common(found.proof.versions)
        if isinstance(found, RelayFailure) or versions is None:
            fault = found.fault if isinstance(found, RelayFailure) else TransportFault.VERSION
            counters.count_relay(_SESSION_ERRORS.get(fault, "proxy_other_errors"), own=own)
            return Refused(ProxyBroker(fault))
        counters.count_relay("proxy_sessions", own=own)
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
        counters = self._state.counters
        counters.count_relay("proxy_forwards", own=relay.own)
        nonce = self._state.randomness.new_id()
        envelope = RelayEnvelope(request.corr_id, command.version, command.client_key, command.transmission)
        sealed = RelayForwarded(envelope.seal(relay.proof.forwarding_key, nonce))
        try:
            with relay.in_use() as client:
                answer = await client.request(sealed, corr_id=nonce, timeout=self._settings.response_timeout)
        except RouterRefused as refusal:
            error: RouterError = ProxyProtocol(refusal.error)
        except ResponseTimeout:
            error = ProxyBroker(BrokerFault.TIMEOUT)
        except LocalProtocolError:  # our envelope makes it longer than the received block
            error = ProxyBroker(TransportFault.LARGE_MSG)
        except RemoteProtocolError:
            error = ProxyBroker(TransportFault.BLOCK)
        except (TransportError, ClientError):
            error = ProxyBroker(NetworkFault())
        except Exception as failure:
            logger.warning("forwarding to a relay failed: %s", type(failure).__name__, exc_info=True)
            error = ProxyBroker(NetworkFault())
        else:
            opened = _opened(answer, relay, nonce, request.corr_id)
            if isinstance(opened, ForwardedAnswer):
                counters.count_relay("proxy_forwards_answered", own=relay.own)
                return opened
            error = opened
        counters.count_relay(_forward_error(error, command.version, relay), own=relay.own)
        return Refused(error)

    def _password_fits(self, given: bytes | None) -> bool:
        needed = self._state.settings.create_password
        return needed is None or (given is not None and hmac.compare_digest(needed.encode(), given))


def _forward_error(error: RouterError, version: int, relay: Relay) -> RelayCount:
    """Return the counter of a failed PFWD."""
    if error == ProxyBroker(NetworkFault()):
        return "proxy_forward_connect_errors"
    if isinstance(error, ProxyProtocol) and version not in relay.proof.versions:
        return "proxy_forward_version_errors"
    return "proxy_forward_errors"


def _opened(answer: Response, relay: Relay, nonce: bytes, corr_id: bytes) -> ForwardedAnswer | ProxyBroker:
    if not isinstance(answer, RelayAnswer):
        return ProxyBroker(NetworkFault())
    try:
        opened = RelayAnswerEnvelope.unseal(relay.proof.forwarding_key, nonce, answer.envelope)
    except (BadBox, DecodeError):
        return ProxyBroker(TransportFault.BLOCK)
    if opened.corr_id != corr_id:  # an answer to another command; it might not even fit our block
        return ProxyBroker(TransportFault.BLOCK)
    return ForwardedAnswer(opened.transmission)


FORWARDED: Final = (SendMessage, SecureQueueBySender, SecureLinkedQueue, GetLinkData)
"""Commands that clients may send through a proxy, besides RSLV."""


class RelayCommands:
    """Executes RFWD, the relay side of forwarding."""

    def __init__(
        self, state: SmpState, execute: Callable[[SmpRequest[Any]], Response], names: NameCommands
    ) -> None:
        self._state = state
        self._execute = execute
        self._names = names

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
        if not SMP.supported.lowest <= envelope.version <= self._state.settings.highest_version:
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
        self._state.counters.relayed_commands += 1
        received = inner.read_transmission(transmission)
        to_sender, to_proxy = (key, envelope.corr_id), (session.forwarding_key, request.corr_id)
        relayed = RelayedCommand(inner, received.corr_id, received.entity_id, *to_sender, *to_proxy)
        if isinstance(received, ReceivedCommand) and isinstance(received.command, ResolveName):
            return self._names.begin(request, received.command.name, relayed)
        return relayed.sealed(self._respond(request, inner, received))

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
            count_refusal(self._state.counters, received.command, verified)
            return Refused(verified)
        response = self._execute(verified)
        outer.effects += verified.effects
        return response
