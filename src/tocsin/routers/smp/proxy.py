"""The proxy's side of forwarding: senders reach other routers without showing them their address (smp.md 6.7).

One connection per relay serves all clients. Making one is slow and may fail, so it is made once for all who ask at
the same time, and a failure is remembered for a while.
"""

from __future__ import annotations

import asyncio
import hmac
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field

from tocsin.clients import ClientSettings, RouterRefused, SmpClient
from tocsin.errors import (
    BadBox,
    ClientError,
    DecodeError,
    HandshakeFault,
    HandshakeRefused,
    LocalProtocolError,
    RemoteProtocolError,
    ResponseTimeout,
    TocsinError,
    TransportError,
)
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.error_codes import (
    AnyBrokerFault,
    BrokerFault,
    NetworkFault,
    ProxyBroker,
    ProxyFault,
    ProxyProtocol,
    RouterError,
    TransportFault,
)
from tocsin.protocol.messages import Response
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import RelayProof
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded, RequestProxySession
from tocsin.protocol.smp.proxying import RelayAnswerEnvelope, RelayEnvelope
from tocsin.protocol.smp.responses import ForwardedAnswer, ProxySession, RelayAnswer
from tocsin.protocol.smp.versions import PROXIED
from tocsin.routers.smp.work import RouterState, Task
from tocsin.transport.client_sessions import DialSettings
from tocsin.transport.socks5 import SocksProxy


@dataclass(slots=True)
class _Relay:
    """A connection to one relay."""

    client: SmpClient
    proof: RelayProof
    context: AbstractAsyncContextManager[SmpClient] = field(repr=False)
    watcher: asyncio.Task[None] | None = field(default=None, repr=False)


@dataclass(slots=True)
class _Failure:
    fault: AnyBrokerFault


class Proxy:
    def __init__(self, state: RouterState) -> None:
        self._state = state
        self._settings = state.settings.proxy
        self._relays: dict[RouterLocation, asyncio.Future[_Relay | _Failure]] = {}
        self._by_session: dict[bytes, _Relay] = {}

    async def request_session(self, task: Task) -> Response:
        """PRXY"""
        command = task.command
        assert isinstance(command, RequestProxySession)
        if not self._settings.enabled or not self._password_fits(command.password):
            return Refused(ProxyFault.BASIC_AUTH)
        self._state.counters.proxy_requests += 1
        found = await self._relay(command.relay)
        if isinstance(found, _Failure):
            self._state.counters.proxy_connect_errors += 1
            return Refused(ProxyBroker(found.fault))
        versions = PROXIED.common(found.proof.versions)
        if versions is None:
            return Refused(ProxyBroker(TransportFault.VERSION))
        return ProxySession(found.client.session.session_id, versions, found.proof.certificate_key)

    async def forward(self, task: Task) -> Response:
        """PFWD"""
        command = task.command
        assert isinstance(command, ForwardToRelay)
        relay = self._by_session.get(task.entity_id)
        if relay is None:
            return Refused(ProxyFault.NO_SESSION)
        self._state.counters.proxy_forwards += 1
        nonce = self._state.randomness.new_id()
        envelope = RelayEnvelope(task.corr_id, command.version, command.client_key, command.transmission)
        sealed = RelayForwarded(envelope.seal(relay.proof.forwarding_key, nonce))
        try:
            answer = await relay.client.request(
                sealed, corr_id=nonce, timeout=self._settings.response_timeout
            )
        except RouterRefused as refusal:
            return self._failed(ProxyProtocol(refusal.error))
        except ResponseTimeout:
            return self._failed(ProxyBroker(BrokerFault.TIMEOUT))
        except LocalProtocolError:  # our envelope makes it longer than the block it came in
            return self._failed(ProxyBroker(TransportFault.LARGE_MSG))
        except RemoteProtocolError:
            return self._failed(ProxyBroker(TransportFault.BLOCK))
        except (TransportError, ClientError):
            return self._failed(ProxyBroker(NetworkFault()))
        return _opened(answer, relay, nonce, task.corr_id)

    def _failed(self, error: RouterError) -> Refused:
        self._state.counters.proxy_forward_errors += 1
        return Refused(error)

    async def close(self) -> None:
        for waiting in list(self._relays.values()):
            waiting.cancel()
        relays, self._by_session = list(self._by_session.values()), {}
        for relay in relays:
            with suppress(TocsinError):
                await relay.context.__aexit__(None, None, None)
            if relay.watcher is not None:
                await relay.watcher

    def _password_fits(self, given: bytes | None) -> bool:
        needed = self._state.settings.create_password
        return needed is None or (given is not None and hmac.compare_digest(needed.encode(), given))

    async def _relay(self, location: RouterLocation) -> _Relay | _Failure:
        known = self._relays.get(location)
        if known is None:
            known = self._relays[location] = asyncio.ensure_future(self._connect(location))
            known.add_done_callback(lambda connected: self._connected(location, connected))
        return await asyncio.shield(known)

    def _connected(self, location: RouterLocation, connected: asyncio.Future[_Relay | _Failure]) -> None:
        """A failure is remembered for a while only: the table must not grow with every address asked for."""
        if connected.cancelled() or connected.exception() is not None:
            self._forget(location, connected)
        elif isinstance(connected.result(), _Failure):
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.remember_failure, self._forget, location, connected)

    def _forget(self, location: RouterLocation, known: asyncio.Future[_Relay | _Failure]) -> None:
        if self._relays.get(location) is known:
            del self._relays[location]

    async def _connect(self, location: RouterLocation) -> _Relay | _Failure:
        settings = self._settings
        socks = None
        if settings.socks_proxy is not None:
            host, _, port = settings.socks_proxy.rpartition(":")
            socks = SocksProxy(host, int(port), onion_only=settings.socks_onion_only)
        dial = DialSettings(connect_timeout=settings.connect_timeout, proxy=True, socks=socks)
        context = SmpClient.connect(RouterAddress(Scheme.SMP, location), ClientSettings(dial=dial))
        try:
            client = await context.__aenter__()
        except TocsinError as error:
            return _Failure(_fault(error))
        proof = client.session.relay
        if proof is None:
            await context.__aexit__(None, None, None)
            return _Failure(TransportFault.VERSION)
        relay = _Relay(client, proof, context)
        self._by_session[client.session.session_id] = relay
        relay.watcher = asyncio.create_task(self._watch(location, relay))
        return relay

    async def _watch(self, location: RouterLocation, relay: _Relay) -> None:
        """Forgets the session when the relay's connection is lost."""
        with suppress(TocsinError):
            async for _event in relay.client.events():
                pass
        if self._by_session.pop(relay.client.session.session_id, None) is not None:
            self._relays.pop(location, None)
            with suppress(TocsinError):
                await relay.context.__aexit__(None, None, None)


def _opened(answer: Response, relay: _Relay, nonce: bytes, corr_id: bytes) -> Response:
    if not isinstance(answer, RelayAnswer):
        return Refused(ProxyBroker(NetworkFault()))
    try:
        opened = RelayAnswerEnvelope.unseal(relay.proof.forwarding_key, nonce, answer.envelope)
    except (BadBox, DecodeError):
        return Refused(ProxyBroker(TransportFault.BLOCK))
    if opened.corr_id != corr_id:  # an answer to another command; it might not even fit our block
        return Refused(ProxyBroker(TransportFault.BLOCK))
    return ForwardedAnswer(opened.transmission)


def _fault(error: TocsinError) -> AnyBrokerFault:
    """What the client is told of a relay that cannot be reached: a wrong identity looks like no answer."""
    if isinstance(error, HandshakeRefused) and error.fault is HandshakeFault.VERSION:
        return TransportFault.VERSION
    return NetworkFault()
