"""The proxy side of forwarding: senders reach other routers without showing their address (smp.md 6.7).

One connection per relay serves all clients (`relays.py`).
"""

from __future__ import annotations

import hmac

from tocsin.clients import RouterRefused
from tocsin.errors import (
    BadBox,
    ClientError,
    DecodeError,
    LocalProtocolError,
    RemoteProtocolError,
    ResponseTimeout,
    TransportError,
)
from tocsin.protocol.error_codes import (
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
from tocsin.protocol.smp.proxy_commands import ForwardToRelay, RelayForwarded, RequestProxySession
from tocsin.protocol.smp.proxying import RelayAnswerEnvelope, RelayEnvelope
from tocsin.protocol.smp.responses import ForwardedAnswer, ProxySession, RelayAnswer
from tocsin.protocol.smp.versions import PROXIED
from tocsin.smp_router.proxy.relays import Relay, RelayFailure, Relays
from tocsin.smp_router.session.requests import SmpRequest, SmpState


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
        found = await self.relays.find(command.relay)
        if isinstance(found, RelayFailure):
            self._state.counters.proxy_connect_errors += 1
            return Refused(ProxyBroker(found.fault))
        self._state.counters.proxy_requests_own += found.own
        versions = PROXIED.common(found.proof.versions)
        if versions is None:
            return Refused(ProxyBroker(TransportFault.VERSION))
        return ProxySession(found.client.session.session_id, versions, found.proof.certificate_key)

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
        except LocalProtocolError:  # our envelope makes it longer than the block it came in
            return self._failed(ProxyBroker(TransportFault.LARGE_MSG))
        except RemoteProtocolError:
            return self._failed(ProxyBroker(TransportFault.BLOCK))
        except (TransportError, ClientError):
            return self._failed(ProxyBroker(NetworkFault()))
        return _opened(answer, relay, nonce, request.corr_id)

    def _failed(self, error: RouterError) -> Refused:
        self._state.counters.proxy_forward_errors += 1
        return Refused(error)

    @property
    def relay_count(self) -> int:
        """Connections to relays that are open now."""
        return self.relays.open

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
