"""The errors a router answers with, and their text on the wire (smp.md 6.5; NTF uses the same grammar).

error = "BLOCK" | "SESSION" | "CMD " cmdErr | "PROXY " proxyErr | "AUTH" | "BLOCKED " blockInfo | "SERVICE" | "CRYPTO"
      | "QUOTA" | "STORE " text | "NO_MSG" | "LARGE_MSG" | "EXPIRED" | "INTERNAL" | "DUPLICATE_"
      | "NAME " ("NO_RESOLVER" | "NOT_FOUND" | "RESOLVER " text)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, TypeAlias, TypeVar, assert_never

from tocsin.errors import DecodeError, HandshakeFault
from tocsin.wire.reader import WireReader, as_text
from tocsin.wire.writer import WireWriter

E = TypeVar("E", bound=Enum)

BLOCKED_VERSION: Final = 12
"""SMP v12: the answer is BLOCKED; before, AUTH."""
NOTICE_VERSION: Final = 18
"""SMP v18: BLOCKED carries a notice."""
MAX_PROXY_DEPTH: Final = 4
"""How deep `PROXY PROTOCOL` errors may be nested. Routers send one; more is an attack on our stack."""
MAX_NOTICE_BYTES: Final = 1024


class ErrorCode(StrEnum):
    """Errors that are one word."""

    BLOCK = "BLOCK"
    """The block or a transmission in it cannot be read."""
    SESSION = "SESSION"
    """A transmission of another TLS session."""
    AUTH = "AUTH"
    """Not authorized, or there is no such entity. The client does not learn which."""
    SERVICE = "SERVICE"
    """A service's signature is missing or wrong, or the session is not one of a service."""
    CRYPTO = "CRYPTO"
    """Something could not be decrypted."""
    QUOTA = "QUOTA"
    """A limit is reached: of a queue, of packets, of SMP routers."""
    NO_MSG = "NO_MSG"
    """ACK of a message that is not the one delivered."""
    LARGE_MSG = "LARGE_MSG"
    """The message is longer than its version allows."""
    EXPIRED = "EXPIRED"
    """The requested item is too old."""
    INTERNAL = "INTERNAL"
    """The router failed; try again."""
    DUPLICATE = "DUPLICATE_"
    """An error that this side does not know."""


class CommandFault(StrEnum):
    """`CMD …`: a command that is not right in itself."""

    UNKNOWN = "UNKNOWN"
    """Not a command of this protocol."""
    SYNTAX = "SYNTAX"
    """Its parameters cannot be read."""
    PROHIBITED = "PROHIBITED"
    """Not allowed here for any client."""
    NO_AUTH = "NO_AUTH"
    """It needs an authorization and has none."""
    HAS_AUTH = "HAS_AUTH"
    """It must have no authorization or entity and has one."""
    NO_ENTITY = "NO_ENTITY"
    """It needs an entity and names none."""


_OLD_COMMAND_FAULTS: Final = {"NO_QUEUE": CommandFault.NO_ENTITY}


class BlockReason(StrEnum):
    SPAM = "spam"
    """It was used for spam."""
    CONTENT = "content"
    """Its content broke the conditions of use."""


@dataclass(frozen=True, slots=True)
class BlockNotice:
    """The operator's notice to the client: for how many seconds to show it."""

    ttl: int | None


@dataclass(frozen=True, slots=True)
class Blocked:
    """`BLOCKED reason=…[,notice=…]`: the operator blocked the queue."""

    reason: BlockReason
    notice: BlockNotice | None = None


@dataclass(frozen=True, slots=True)
class StoreFault:
    """`STORE text`. We send short fixed texts; the reference sends database details."""

    text: str


class NameFault(Enum):
    """`NAME …` without further detail (SMP v20)."""

    NO_RESOLVER = "NO_RESOLVER"
    """This router resolves no names."""
    NOT_FOUND = "NOT_FOUND"
    """There is no such name."""


@dataclass(frozen=True, slots=True)
class ResolverFault:
    """`NAME RESOLVER text`: the router's resolver failed."""

    text: str


class ProxyFault(Enum):
    """`PROXY …` without further detail."""

    BASIC_AUTH = "BASIC_AUTH"
    """The proxy wants its password."""
    NO_SESSION = "NO_SESSION"
    """It has lost its session with that relay: ask for a new one."""


class NetworkFaultKind(StrEnum):
    CONNECT = "CONNECT"
    """The relay could not be reached."""
    TLS = "TLS"
    """TLS failed."""
    UNKNOWN_CA = "UNKNOWNCA"
    """The relay has another identity than its address says."""
    FAILED = "FAILED"
    """The connection failed."""
    TIMEOUT = "TIMEOUT"
    """It took too long."""
    SUBSCRIBE = "SUBSCRIBE"
    """A subscription failed."""


_NETWORK_FAULTS_WITH_TEXT: Final = frozenset(
    {NetworkFaultKind.CONNECT, NetworkFaultKind.TLS, NetworkFaultKind.SUBSCRIBE}
)


@dataclass(frozen=True, slots=True)
class NetworkFault:
    """`NETWORK [kind [text]]`: the proxy could not reach the relay."""

    kind: NetworkFaultKind | None = None
    text: str = ""


class TransportFault(Enum):
    """`TRANSPORT …`: a failure between proxy and relay, below the commands."""

    BLOCK = "BLOCK"
    """A block that cannot be read."""
    VERSION = "VERSION"
    """No version in common."""
    LARGE_MSG = "LARGE_MSG"
    """A message that fits no block."""
    SESSION = "SESSION"
    """A hello of another TLS session."""
    NO_AUTH = "NO_AUTH"
    """The relay has no key to authorize with."""
    HANDSHAKE_PARSE = "HANDSHAKE PARSE"
    """A hello that does not parse."""
    HANDSHAKE_IDENTITY = "HANDSHAKE IDENTITY"
    """The identity of another router."""
    HANDSHAKE_BAD_AUTH = "HANDSHAKE BAD_AUTH"
    """A certificate or key that proves nothing."""
    HANDSHAKE_BAD_SERVICE = "HANDSHAKE BAD_SERVICE"
    """A certificate that is known in another role."""


class BrokerFault(Enum):
    HOST = "HOST"
    """The address cannot be used."""
    NO_SERVICE = "NO_SERVICE"
    """The relay does not serve this."""
    TIMEOUT = "TIMEOUT"
    """The relay did not answer in time."""


@dataclass(frozen=True, slots=True)
class BrokerResponse:
    """`RESPONSE text` or `UNEXPECTED text`: the relay's answer makes no sense."""

    expected: bool
    text: str


AnyBrokerFault: TypeAlias = BrokerFault | BrokerResponse | NetworkFault | TransportFault


@dataclass(frozen=True, slots=True)
class ProxyBroker:
    """`PROXY BROKER …`: the proxy's problem with the relay."""

    fault: AnyBrokerFault


@dataclass(frozen=True, slots=True)
class ProxyProtocol:
    """`PROXY PROTOCOL error`: the relay refused what the proxy sent."""

    error: RouterError


RouterError: TypeAlias = (
    "ErrorCode | CommandFault | Blocked | StoreFault | NameFault | ResolverFault"
    " | ProxyFault | ProxyBroker | ProxyProtocol"
)

HANDSHAKE_FAULTS: Final = {
    HandshakeFault.PARSE: TransportFault.HANDSHAKE_PARSE,
    HandshakeFault.IDENTITY: TransportFault.HANDSHAKE_IDENTITY,
    HandshakeFault.BAD_AUTH: TransportFault.HANDSHAKE_BAD_AUTH,
    HandshakeFault.BAD_SERVICE: TransportFault.HANDSHAKE_BAD_SERVICE,
    HandshakeFault.SESSION: TransportFault.SESSION,
    HandshakeFault.VERSION: TransportFault.VERSION,
}


def encode_error(error: RouterError, version: int) -> bytes:
    """The text after `ERR `. BLOCKED depends on the SMP version; NTF never sends it."""
    match error:
        case ErrorCode():
            return error.value.encode()
        case CommandFault():
            return b"CMD " + error.value.encode()
        case Blocked():
            return _encode_blocked(error, version)
        case StoreFault(text):
            return b"STORE " + text.encode()
        case NameFault():
            return b"NAME " + error.value.encode()
        case ResolverFault(text):
            return b"NAME RESOLVER " + text.encode()
        case ProxyFault():
            return b"PROXY " + error.value.encode()
        case ProxyBroker(fault):
            return b"PROXY BROKER " + _encode_broker_fault(fault)
        case ProxyProtocol(inner):
            return b"PROXY PROTOCOL " + encode_error(inner, version)
        case _:
            assert_never(error)


def decode_error(body: WireReader, depth: int = 0) -> RouterError:
    """Decode an error. Raises `DecodeError`. The caller must refuse leftover bytes."""
    word = _word(body)
    match word:
        case "CMD":
            fault = _argument_word(body)
            return _OLD_COMMAND_FAULTS.get(fault) or _member(CommandFault, fault)
        case "PROXY":
            return _decode_proxy_error(body, depth)
        case "BLOCKED":
            body.expect(b" ")
            return decode_block_info(as_text(body.rest()))
        case "STORE":
            body.expect(b" ")
            return StoreFault(as_text(body.rest()))
        case "NAME":
            return _decode_name_error(body)
        case _:
            return _member(ErrorCode, word)


def encode_transport_fault(fault: TransportFault) -> bytes:
    return fault.value.encode()


def decode_transport_fault(body: WireReader) -> TransportFault:
    word = _word(body)
    if word == "HANDSHAKE":
        word = f"HANDSHAKE {_argument_word(body)}"
    return _member(TransportFault, word)


def _encode_blocked(blocked: Blocked, version: int) -> bytes:
    if version < BLOCKED_VERSION:
        return ErrorCode.AUTH.value.encode()
    text = f"BLOCKED reason={blocked.reason}"
    if blocked.notice is None or version < NOTICE_VERSION:
        return text.encode()
    notice = {} if blocked.notice.ttl is None else {"ttl": blocked.notice.ttl}
    return f"{text},notice={json.dumps(notice, separators=(',', ':'))}".encode()


def decode_block_info(text: str) -> Blocked:
    """Decode blockInfo, as in the error, in store logs and in operators' commands. Raises `DecodeError`."""
    if not text.startswith("reason="):
        raise DecodeError("BLOCKED without a reason")
    reason, has_notice, notice = text.removeprefix("reason=").partition(",notice=")
    return Blocked(_member(BlockReason, reason), _decode_notice(notice) if has_notice else None)


def _decode_notice(text: str) -> BlockNotice:
    if len(text) > MAX_NOTICE_BYTES:
        raise DecodeError("a BLOCKED notice that is too long")
    try:
        notice = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError("a BLOCKED notice that is not JSON") from error
    ttl = notice.get("ttl") if isinstance(notice, dict) else ""
    if ttl is not None and (not isinstance(ttl, int) or isinstance(ttl, bool)):
        raise DecodeError("a BLOCKED notice whose ttl is not a number of seconds")
    return BlockNotice(ttl)


def _decode_name_error(body: WireReader) -> RouterError:
    word = _argument_word(body)
    if word != "RESOLVER":
        return _member(NameFault, word)
    body.expect(b" ")
    return ResolverFault(as_text(body.rest()))


def _decode_proxy_error(body: WireReader, depth: int) -> RouterError:
    word = _argument_word(body)
    match word:
        case "PROTOCOL":
            if depth >= MAX_PROXY_DEPTH:
                raise DecodeError("proxy errors nested too deep")
            body.expect(b" ")
            return ProxyProtocol(decode_error(body, depth + 1))
        case "BROKER":
            body.expect(b" ")
            return ProxyBroker(_decode_broker_fault(body))
        case _:
            return _member(ProxyFault, word)


def _encode_broker_fault(fault: AnyBrokerFault) -> bytes:
    match fault:
        case BrokerFault():
            return fault.value.encode()
        case BrokerResponse(expected, text):
            out = WireWriter(b"RESPONSE " if expected else b"UNEXPECTED ")
            return out.short_text(text).done()
        case NetworkFault(kind, text):
            if kind is None:
                return b"NETWORK"
            out = WireWriter(b"NETWORK " + kind.value.encode())
            return out.raw(b" ").short_text(text).done() if kind in _NETWORK_FAULTS_WITH_TEXT else out.done()
        case TransportFault():
            return b"TRANSPORT " + encode_transport_fault(fault)
        case _:
            assert_never(fault)


def _decode_broker_fault(body: WireReader) -> AnyBrokerFault:
    word = _word(body)
    match word:
        case "RESPONSE" | "UNEXPECTED":
            body.expect(b" ")
            return BrokerResponse(word == "RESPONSE", body.short_text())
        case "NETWORK":
            return _decode_network_fault(body) if body.skip(b" ") else NetworkFault()
        case "TRANSPORT":
            body.expect(b" ")
            return decode_transport_fault(body)
        case _:
            return _member(BrokerFault, word)


def _decode_network_fault(body: WireReader) -> NetworkFault:
    kind = _member(NetworkFaultKind, _word(body))
    if kind not in _NETWORK_FAULTS_WITH_TEXT:
        return NetworkFault(kind)
    body.expect(b" ")
    return NetworkFault(kind, body.short_text())


def _word(body: WireReader) -> str:
    return as_text(body.until(b" "))


def _argument_word(body: WireReader) -> str:
    body.expect(b" ")
    return _word(body)


def _member(kind: type[E], word: str) -> E:
    try:
        return kind(word)
    except ValueError as error:
        raise DecodeError(f"unknown error word {word[:32]!r}") from error
