"""The hellos as messages, and the handshakes as state machines with fixed keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from fuzz import fixed_parties as fixed
from fuzz.contract import attempt, choose, demand, demand_equal
from tocsin.errors import DecodeError, HandshakeRefused
from tocsin.protocol.ntf import handshake as ntf
from tocsin.protocol.ntf.handshake import NtfClientHandshake, NtfRouterHandshake
from tocsin.protocol.sessions import ClientSession, RouterSession
from tocsin.protocol.smp import hellos as smp
from tocsin.protocol.smp.client_handshake import AwaitingService, SmpClientHandshake
from tocsin.protocol.smp.router_handshake import ServiceRefused, SmpRouterHandshake


class Hello(Protocol):
    def encode(self) -> bytes: ...


HELLOS: Final[tuple[Callable[[bytes], Hello], ...]] = (
    smp.RouterHello.decode,
    smp.ClientHello.decode,
    smp.decode_service_answer,
    ntf.NtfRouterHello.decode,
    ntf.NtfClientHello.decode,
)

AWAITING: Final = "the answer to a service"
PARTIES: Final = (*fixed.SMP_CLIENTS, *fixed.SMP_ROUTERS, fixed.NTF_CLIENT, *fixed.NTF_ROUTERS, AWAITING)


def hello(data: bytes) -> None:
    """Every message of both handshakes. Bytes after the known fields are ignored."""
    decode, data = choose(data, HELLOS)
    decoded = attempt(lambda: decode(data), DecodeError)
    if decoded is None:
        return
    encoded = decoded.encode()
    demand(data.startswith(encoded), "the known fields of a hello have one form")
    demand_equal(decode(encoded), decoded, "encode then decode gives the hello back")


def handshake(data: bytes) -> None:
    """Whole handshakes: a session with agreed properties, or `HandshakeRefused`."""
    party, data = choose(data, PARTIES)
    match party:
        case SmpClientHandshake():
            _smp_client(party, data)
        case SmpRouterHandshake():
            _smp_router(party, data)
        case NtfClientHandshake():
            _ntf_client(party, data)
        case NtfRouterHandshake():
            _ntf_router(party, data)
        case _:
            _service_answer(data)


def _smp_client(party: SmpClientHandshake, data: bytes) -> None:
    answered = attempt(lambda: party.answer(data), HandshakeRefused)
    if answered is None:
        return
    content, outcome, router_hello = answered
    sent = smp.ClientHello.decode(content)
    demand_equal(sent.key_hash, party.key_hash, "the client names the identity it wants")
    demand(sent.version in party.versions and sent.version in router_hello.versions, "both speak the version")
    demand_equal(
        isinstance(outcome, AwaitingService), sent.service is not None, "a service waits for its answer"
    )
    if isinstance(outcome, ClientSession):
        demand_equal(outcome.session_id, party.tls_session_id, "the session is the one of TLS")
        demand_equal(outcome.version, sent.version, "the session has the version of the hello")
        demand(sent.client_key is not None or not outcome.encrypted, "encryption needs the client's key")


def _service_answer(data: bytes) -> None:
    _, waiting, _ = fixed.SMP_CLIENTS[3].answer(fixed.SMP_ROUTERS[0].hello())
    demand(isinstance(waiting, AwaitingService), "the fixed client offers a service")
    if isinstance(waiting, AwaitingService):
        session = attempt(lambda: waiting.finish(data), HandshakeRefused)
        demand(session is None or session.service is not None, "an accepted service has a service session")


def _smp_router(party: SmpRouterHandshake, data: bytes) -> None:
    try:
        outcome = party.accept(data, fixed.NOW)
    except ServiceRefused as refusal:
        demand(
            isinstance(smp.decode_service_answer(refusal.reply), smp.ServiceRejected), "a refusal is readable"
        )
        return
    except HandshakeRefused:
        return
    if not isinstance(outcome, RouterSession):
        demand_equal(outcome.fingerprint, fixed.SERVICE.fingerprint, "a claim names the certificate of TLS")
        reply, outcome = outcome.accept(b"service id")
        demand_equal(
            smp.decode_service_answer(reply), smp.ServiceAccepted(b"service id"), "the id is readable"
        )
    demand(outcome.version in party.offered, "the client's version was offered")


def _ntf_client(party: NtfClientHandshake, data: bytes) -> None:
    answered = attempt(lambda: party.answer(data), HandshakeRefused)
    if answered is not None:
        content, session = answered
        sent = ntf.NtfClientHello.decode(content)
        demand_equal((sent.version, sent.key_hash), (session.version, party.key_hash), "the hello fits")
        demand(session.version in party.versions, "the client speaks the version")


def _ntf_router(party: NtfRouterHandshake, data: bytes) -> None:
    session = attempt(lambda: party.accept(data), HandshakeRefused)
    demand(session is None or session.version in party.offered, "the client's version was offered")
