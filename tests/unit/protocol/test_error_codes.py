from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import errors
from tocsin.errors import DecodeError, HandshakeFault
from tocsin.protocol.error_codes import (
    HANDSHAKE_FAULTS,
    MAX_PROXY_DEPTH,
    Blocked,
    BlockNotice,
    BlockReason,
    BrokerFault,
    BrokerResponse,
    CommandFault,
    ErrorCode,
    NameFault,
    NetworkFault,
    NetworkFaultKind,
    ProxyBroker,
    ProxyFault,
    ProxyProtocol,
    ResolverFault,
    RouterError,
    StoreFault,
    TransportFault,
    decode_error,
    encode_error,
)
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.dialect import SMP
from tocsin.wire.reader import WireReader


def decode(text: bytes) -> RouterError:
    response = SMP.responses.decode(b"ERR " + text, 18)
    assert isinstance(response, Refused)
    return response.error


TEXTS: list[tuple[RouterError, bytes]] = [
    *((code, code.value.encode()) for code in ErrorCode),
    *((fault, b"CMD " + fault.value.encode()) for fault in CommandFault),
    (Blocked(BlockReason.SPAM), b"BLOCKED reason=spam"),
    (Blocked(BlockReason.CONTENT, BlockNotice(None)), b"BLOCKED reason=content,notice={}"),
    (Blocked(BlockReason.SPAM, BlockNotice(86400)), b'BLOCKED reason=spam,notice={"ttl":86400}'),
    (StoreFault("no such row, sorry"), b"STORE no such row, sorry"),
    (StoreFault(""), b"STORE "),
    (NameFault.NO_RESOLVER, b"NAME NO_RESOLVER"),
    (NameFault.NOT_FOUND, b"NAME NOT_FOUND"),
    (ResolverFault("HTTP 503"), b"NAME RESOLVER HTTP 503"),
    (ProxyFault.BASIC_AUTH, b"PROXY BASIC_AUTH"),
    (ProxyFault.NO_SESSION, b"PROXY NO_SESSION"),
    (ProxyProtocol(ErrorCode.CRYPTO), b"PROXY PROTOCOL CRYPTO"),
    (ProxyProtocol(CommandFault.SYNTAX), b"PROXY PROTOCOL CMD SYNTAX"),
    (ProxyBroker(BrokerFault.HOST), b"PROXY BROKER HOST"),
    (ProxyBroker(BrokerFault.NO_SERVICE), b"PROXY BROKER NO_SERVICE"),
    (ProxyBroker(BrokerFault.TIMEOUT), b"PROXY BROKER TIMEOUT"),
    (ProxyBroker(BrokerResponse(True, "a b")), b"PROXY BROKER RESPONSE \x03a b"),
    (ProxyBroker(BrokerResponse(False, "")), b"PROXY BROKER UNEXPECTED \x00"),
    (ProxyBroker(NetworkFault()), b"PROXY BROKER NETWORK"),
    (ProxyBroker(NetworkFault(NetworkFaultKind.CONNECT, "x")), b"PROXY BROKER NETWORK CONNECT \x01x"),
    (ProxyBroker(NetworkFault(NetworkFaultKind.TLS, "x")), b"PROXY BROKER NETWORK TLS \x01x"),
    (ProxyBroker(NetworkFault(NetworkFaultKind.UNKNOWN_CA)), b"PROXY BROKER NETWORK UNKNOWNCA"),
    (ProxyBroker(NetworkFault(NetworkFaultKind.FAILED)), b"PROXY BROKER NETWORK FAILED"),
    (ProxyBroker(NetworkFault(NetworkFaultKind.TIMEOUT)), b"PROXY BROKER NETWORK TIMEOUT"),
    (ProxyBroker(NetworkFault(NetworkFaultKind.SUBSCRIBE, "x")), b"PROXY BROKER NETWORK SUBSCRIBE \x01x"),
    *((ProxyBroker(fault), b"PROXY BROKER TRANSPORT " + fault.value.encode()) for fault in TransportFault),
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=[text.decode("latin-1") for _, text in TEXTS])
def test_every_error_has_the_text_of_the_grammar(error: RouterError, text: bytes) -> None:
    assert encode_error(error, 18) == text
    assert decode(text) == error


@pytest.mark.parametrize(
    "text", [text for error, text in TEXTS if not isinstance(error, StoreFault | ResolverFault)]
)
def test_an_error_with_something_behind_it_is_refused(text: bytes) -> None:
    for behind in (b"x", b" x"):
        with pytest.raises(DecodeError):
            decode(text + behind)


def test_the_old_word_for_no_entity_is_understood() -> None:
    assert decode(b"CMD NO_QUEUE") is CommandFault.NO_ENTITY


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (6, b"AUTH"),
        (11, b"AUTH"),
        (12, b"BLOCKED reason=spam"),
        (17, b"BLOCKED reason=spam"),
        (18, b'BLOCKED reason=spam,notice={"ttl":1}'),
    ],
)
def test_a_blocked_queue_is_told_as_the_version_allows(version: int, text: bytes) -> None:
    assert encode_error(Blocked(BlockReason.SPAM, BlockNotice(1)), version) == text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"auth",
        b"CMD",
        b"CMD ",
        b"CMD WRONG",
        b"CMD  SYNTAX",
        b"STORE",
        b"STORE \xff",
        b"BLOCKED",
        b"BLOCKED ",
        b"BLOCKED spam",
        b"BLOCKED reason=",
        b"BLOCKED reason=other",
        b"BLOCKED reason=spam,notice=",
        b"BLOCKED reason=spam,notice=[]",
        b"BLOCKED reason=spam,notice=" + b"[" * 1000,
        b'BLOCKED reason=spam,notice={"ttl":"1"}',
        b'BLOCKED reason=spam,notice={"ttl":true}',
        b'BLOCKED reason=spam,notice={"ttl":1.5}',
        b'BLOCKED reason=spam,notice={"ttl":' + b"1" * 2000 + b"}",
        b"PROXY",
        b"PROXY OTHER",
        b"PROXY PROTOCOL",
        b"PROXY PROTOCOL OTHER",
        b"PROXY BROKER",
        b"PROXY BROKER OTHER",
        b"PROXY BROKER RESPONSE",
        b"PROXY BROKER RESPONSE \x05ab",
        b"PROXY BROKER NETWORK ",
        b"PROXY BROKER NETWORK OTHER",
        b"PROXY BROKER NETWORK TLS",
        b"PROXY BROKER TRANSPORT",
        b"PROXY BROKER TRANSPORT OTHER",
        b"PROXY BROKER TRANSPORT HANDSHAKE",
        b"PROXY BROKER TRANSPORT HANDSHAKE OTHER",
        b"\xff",
    ],
)
def test_other_texts_are_refused(text: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(text)


def test_proxy_errors_are_nested_a_few_times_only() -> None:
    deepest = b"PROXY PROTOCOL " * MAX_PROXY_DEPTH + b"AUTH"
    assert encode_error(decode(deepest), 18) == deepest
    for times in (MAX_PROXY_DEPTH + 1, 1000):
        with pytest.raises(DecodeError, match="nested too deep"):
            decode(b"PROXY PROTOCOL " * times + b"AUTH")


@given(errors(18))
def test_every_error_is_read_back(error: RouterError) -> None:
    assert decode(encode_error(error, 18)) == error


WORDS = [
    "PROXY",
    "PROTOCOL",
    "BROKER",
    "NETWORK",
    "TRANSPORT",
    "HANDSHAKE",
    "TLS",
    "CMD",
    "STORE",
    "AUTH",
    "BLOCKED",
    "reason=spam",
    "\x02ab",
]


@given(st.lists(st.sampled_from([word.encode() for word in WORDS]), max_size=7), st.binary(max_size=6))
def test_any_words_decode_or_are_refused(words: list[bytes], end: bytes) -> None:
    try:
        decode_error(WireReader(b" ".join(words) + end))
    except DecodeError:
        return


def test_every_refusal_of_a_hello_has_a_word_on_the_wire() -> None:
    assert set(HANDSHAKE_FAULTS) == set(HandshakeFault)
    for fault, word in HANDSHAKE_FAULTS.items():
        assert word.value.removeprefix("HANDSHAKE ") == fault.value
