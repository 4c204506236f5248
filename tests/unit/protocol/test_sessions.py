"""Both sides of a session after a real handshake, in every version of both protocols."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.appendix_a import CORR, E448, ENT, SID, A, B, E, V, X, a, b, sha256
from tests.peers import (
    CLIENT_KEY,
    ED448,
    ROUTER_KEY,
    SERVICE_ID,
    SERVICE_KEY,
    TLS_SESSION,
    Pair,
    connect,
    connect_ntf,
    connect_service,
    connect_smp,
    service_credentials,
)
from tests.strategies import messages
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import LocalProtocolError, RemoteProtocolError
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.error_codes import CommandFault, ErrorCode, RouterError
from tocsin.protocol.messages import Command, Needs, Response
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.token_commands import CheckToken
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Done, Refused
from tocsin.protocol.sessions import (
    BlockCoder,
    ClientSession,
    ReceivedCommand,
    ReceivedResponse,
    RefusedCommand,
    RouterSession,
    ServiceRole,
    ServiceSession,
)
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.notifier_commands import SubscribeNotifications, SubscribeServiceNotifications
from tocsin.protocol.smp.recipient_commands import CreateQueue, DeleteQueue, Subscribe
from tocsin.protocol.smp.responses import QueueCreated, Subscribed
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.protocol.smp.services import service_fault
from tocsin.wire.padding import pad

VERSIONS = [
    pytest.param(dialect, version, id=f"{dialect.name}-v{version}")
    for dialect in (SMP, NTF)
    for version in range(dialect.supported.lowest, dialect.supported.highest + 1)
]
SIG0 = base64.b64decode(
    "e8JK+8V3fq6kOLqco/SaKlpNaQ7i1gfOrXoqekEl42u4mF8Bgu14T5j0189CGcUhJHw2RwCMvON+qbvQ9ecJAA=="
)


def plain_client(version: int = 18, service: ServiceSession | None = None) -> ClientSession:
    return ClientSession(SMP, version, SID, BlockCoder(SMP.block_size), B, service)


def plain_router(version: int = 18) -> RouterSession:
    return RouterSession(SMP, version, SID, BlockCoder(SMP.block_size), b)


def subscription(dialect: Dialect) -> Command:
    return Subscribe() if dialect is SMP else CheckToken()


def only(received: list[ReceivedCommand | RefusedCommand]) -> ReceivedCommand:
    assert len(received) == 1
    assert isinstance(received[0], ReceivedCommand)
    return received[0]


# ---- appendix A.5


def test_a_signed_subscription_is_that_of_appendix_a5() -> None:
    signature = bytes.fromhex(
        "af51e6c85b1de434ccb32ae10eefcfac19022a9c3e99333f127ca379a5a905e8"
        "cde6c64079d1c1664b6b804c551d5578b7c012a9f781a0880b8071e1221e1a01"
    )
    transmission = plain_client().request(CORR, ENT, Subscribe(), E)
    assert transmission == b"\x40" + signature + b"\x30\x18" + CORR + b"\x18" + ENT + b"SUB"
    assert len(transmission) == 119
    received = plain_router().read_transmission(transmission)
    assert isinstance(received, ReceivedCommand)
    assert received.authorized == b"\x20" + SID + b"\x18" + CORR + b"\x18" + ENT + b"SUB"
    assert plain_router().verifies(received, E.public)
    assert not plain_router().verifies(received, V.public)


def test_an_authenticated_message_is_that_of_appendix_a5() -> None:
    authenticator = bytes.fromhex(
        "4073ef2c9695b2170c2db9669139cd3bdc48c586bb84c4da628e61596438e9dc2ceba17275d00d8c"
        "826de32f2ecabe11afe61c770f7b372c7211fa050714f00e90895ef6198cacbd70dd0616c7b74f72"
    )
    command = SendMessage(MessageFlags(True), b"hello")
    transmission = plain_client().request(CORR, ENT, command, a)
    assert transmission == b"\x50" + authenticator + b"\x30\x18" + CORR + b"\x18" + ENT + b"SEND T hello"
    received = plain_router().read_transmission(transmission)
    assert isinstance(received, ReceivedCommand)
    assert plain_router().verifies(received, A)
    assert not plain_router().verifies(received, X.public)


def test_a_dual_signed_subscription_is_that_of_appendix_a5() -> None:
    fingerprint = bytes.fromhex("6663a20dc310a93e60487c5c555fd26731698b13ea52c46d3c9c56b420182dc7")
    client = plain_client(service=ServiceSession(SERVICE_ID, fingerprint, V))
    transmission = client.request(CORR, ENT, SubscribeNotifications(), E)
    assert len(transmission) == 185
    assert sha256(transmission) == "438bd978c622715144d4432a25c8bccc1ca8e800ccee9b8478300b5f6acf2667"
    assert transmission[1:65].hex() == (
        "562183fc29b9541107ffcfa01c5063a98a31cfae6fcd9654ed29fe75eea4d6e6"
        "02a16d02ade124a96a8c26fb6b8db82ddc4c4c412f9fadd2f55acb2e41a23303"
    )


# ---- both ways, every version


@pytest.mark.parametrize(("dialect", "version"), VERSIONS)
@pytest.mark.parametrize("key", [E, E448, X], ids=["ed25519", "ed448", "x25519"])
def test_a_command_reaches_the_router_and_its_answer_the_client(
    dialect: Dialect, version: int, key: AuthPrivateKey
) -> None:
    pair = connect(dialect, version)
    assert pair.client.version == pair.router.version == version
    assert pair.client.encrypted == pair.router.encrypted == (dialect is SMP and version >= 11)
    for number in range(3):
        corr_id = bytes((number,)) * 24
        request = pair.client.request(corr_id, ENT, subscription(dialect), key)
        received = only(pair.router.read_block(pair.client.to_block([request])))
        assert (received.corr_id, received.entity_id) == (corr_id, ENT)
        assert received.command == subscription(dialect)
        assert pair.router.verifies(received, key.public)
        assert not pair.router.verifies(received, type(key)(b"\x77" * key.raw_bytes).public)
        pair.router.pretend_to_verify(received)
        block = pair.router.to_block([pair.router.response(corr_id, ENT, Done())])
        assert len(block) == dialect.block_size
        assert pair.client.read_block(block) == [ReceivedResponse(corr_id, ENT, Done())]


@pytest.mark.parametrize(("dialect", "version"), VERSIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_any_command_and_any_response_pass(dialect: Dialect, version: int, data: st.DataObject) -> None:
    pair = connect(dialect, version)
    command = data.draw(st.sampled_from(dialect.commands.kinds).flatmap(lambda kind: messages(kind, version)))
    assert isinstance(command, Command)
    key = None if command.needs in (Needs.NOTHING, Needs.ENTITY) else E
    entity = b"" if command.needs in (Needs.NOTHING, Needs.AUTH) else ENT
    request = pair.client.request(CORR, entity, command, key)
    if len(request) <= dialect.budget - 2:
        assert only(pair.router.read_block(pair.client.to_block([request]))).command == command
    pong = pair.router.to_block([pair.router.response(CORR, b"", Pong())])
    assert pair.client.read_block(pong) == [ReceivedResponse(CORR, b"", Pong())]


@pytest.mark.parametrize("algorithm", [ED448])
def test_a_router_with_an_ed448_certificate_is_reached(algorithm: object) -> None:
    pair = connect_smp(18, algorithm=ED448)
    request = pair.client.request(CORR, b"", Ping(), None)
    assert only(pair.router.read_block(pair.client.to_block([request]))).command == Ping()


@pytest.mark.parametrize(("key", "proxy"), [(None, False), (CLIENT_KEY, True), (None, True)])
def test_without_a_client_key_or_as_a_proxy_blocks_are_not_encrypted(key: None, proxy: bool) -> None:
    pair = connect_smp(18, key=key, proxy=proxy)
    assert not pair.client.encrypted
    assert not pair.router.encrypted
    request = pair.client.request(CORR, ENT, Subscribe(), X)
    block = pair.client.to_block([request])
    assert request in block
    assert pair.router.verifies(only(pair.router.read_block(block)), X.public)


@pytest.mark.parametrize(("dialect", "version"), VERSIONS)
def test_many_commands_travel_in_as_many_blocks_as_needed(dialect: Dialect, version: int) -> None:
    pair = connect(dialect, version)
    sent = [pair.client.request(bytes((n,)), ENT, subscription(dialect), E) for n in range(12)]
    blocks = [pair.client.to_block(batch) for batch in pair.client.batches(sent)]
    received = [item for block in blocks for item in pair.router.read_block(block)]
    assert [item.corr_id for item in received] == [bytes((n,)) for n in range(12)]
    one_each = dialect is NTF and version == 1
    assert len(blocks) == (12 if one_each else 1 if dialect is SMP else 3)


def test_one_transmission_per_block_in_ntf_v1() -> None:
    client = connect_ntf(1).client
    ping = client.request(CORR, b"", Ping(), None)
    with pytest.raises(LocalProtocolError, match="one transmission per block"):
        client.to_block([ping, ping])


@pytest.mark.parametrize("dialect", [SMP, NTF])
def test_a_transmission_that_fits_no_block_is_refused_before_anything_is_sent(dialect: Dialect) -> None:
    client = connect(dialect, dialect.supported.highest).client
    ping = client.request(CORR, b"", Ping(), None)
    with pytest.raises(LocalProtocolError, match="fits no block"):
        next(client.batches([ping, bytes(dialect.block_size), ping]))
    with pytest.raises(LocalProtocolError, match="fits no block"):
        client.require_fits(bytes(dialect.budget - 1))
    client.require_fits(bytes(dialect.budget - 2))


@pytest.mark.parametrize(("dialect", "version"), VERSIONS)
def test_a_filler_collects_what_one_block_holds(dialect: Dialect, version: int) -> None:
    pair = connect(dialect, version)
    filler = pair.client.filler()
    ping = pair.client.request(CORR, b"", Ping(), None)
    while filler.fits(ping):
        filler.add(ping)
    count = len(filler)
    assert len(pair.router.read_block(pair.client.to_block(filler.take()))) == count
    assert (count == 1) == (dialect is NTF and version == 1)


def test_a_content_that_does_not_fit_a_block_is_refused() -> None:
    for pair in (connect_smp(18), connect_smp(6)):
        with pytest.raises(LocalProtocolError):
            pair.client.to_block([bytes(16380)])


def test_an_x25519_key_needs_the_routers_session_key() -> None:
    client = ClientSession(SMP, 6, SID, BlockCoder(SMP.block_size), None)
    with pytest.raises(LocalProtocolError, match="no session key"):
        client.request(CORR, ENT, Subscribe(), X)
    router = RouterSession(SMP, 6, SID, BlockCoder(SMP.block_size), None)
    received = only(
        router.read_block(plain_client(6).to_block([plain_client(6).request(CORR, ENT, Subscribe(), a)]))
    )
    assert not router.verifies(received, A)


# ---- what a router refuses by itself


def block_of(transmission: bytes) -> bytes:
    return plain_client().to_block([transmission])


def test_a_block_that_is_no_batch_is_answered_with_block() -> None:
    for content in (b"", b"\x00", b"\x01", b"\x01\x00\x05ab", b"\x01\x00\x00x"):
        assert plain_router().read_block(pad(content, 16384)) == [RefusedCommand(b"", b"", ErrorCode.BLOCK)]
    assert plain_router().read_block(b"\xff\xff") == [RefusedCommand(b"", b"", ErrorCode.BLOCK)]
    assert plain_router().read_block(b"") == [RefusedCommand(b"", b"", ErrorCode.BLOCK)]


def test_a_transmission_that_does_not_parse_is_answered_with_empty_ids() -> None:
    for data in (
        b"",
        b"\x00",
        b"\x00\x18abc",
        b"\x40" + bytes(64) + b"2",
        b"\x40" + bytes(64) + b"1\x02ab\x00\x00PING",
    ):
        assert plain_router().read_transmission(data) == RefusedCommand(b"", b"", ErrorCode.BLOCK)


@pytest.mark.parametrize(("dialect", "version"), VERSIONS)
def test_every_command_can_be_answered_whatever_the_length_of_its_ids(dialect: Dialect, version: int) -> None:
    """NTF blocks are smaller than two ids of 255 bytes: then the answer names neither."""
    pair = connect(dialect, version)
    for size in (0, 24, 182, 183, 255):
        ids = bytes(size), bytes(size)
        sent = pair.client.request(*ids, Ping(), None)
        received = pair.router.read_transmission(sent)
        assert isinstance(received, RefusedCommand) or size == 0
        answer = pair.router.response(received.corr_id, received.entity_id, Refused(CommandFault.PROHIBITED))
        pair.router.require_fits(answer)
        fits = dialect is SMP or 2 * size <= 365
        assert (received.corr_id, received.entity_id) == (ids if fits else (b"", b""))


@pytest.mark.parametrize("length", [1, 16, 63, 65, 79, 81, 113, 115, 255])
def test_an_authorization_of_another_length_is_answered_with_block(length: int) -> None:
    data = bytes((length,)) + bytes(length) + b"0\x18" + CORR + b"\x18" + ENT + b"SUB"
    assert plain_router().read_transmission(data) == RefusedCommand(CORR, b"", ErrorCode.BLOCK)


@pytest.mark.parametrize(("dialect", "version"), [(SMP, 6), (NTF, 1)])
@pytest.mark.parametrize("session_id", [b"", b"\xff" * 32, TLS_SESSION[:-1]])
def test_another_session_id_on_the_wire_is_answered_with_session(
    dialect: Dialect, version: int, session_id: bytes
) -> None:
    pair = connect(dialect, version)
    stranger = ClientSession(dialect, version, session_id, BlockCoder(dialect.block_size), None)
    for key in (None, E):
        block = stranger.to_block([stranger.request(CORR, ENT, subscription(dialect), key)])
        assert pair.router.read_block(block) == [RefusedCommand(CORR, b"", ErrorCode.SESSION)]


@pytest.mark.parametrize(("dialect", "version"), [(SMP, 6), (NTF, 1)])
@pytest.mark.parametrize("session_id", [b"", b"\xff" * 32])
def test_a_client_refuses_answers_of_another_session(
    dialect: Dialect, version: int, session_id: bytes
) -> None:
    pair = connect(dialect, version)
    stranger = RouterSession(dialect, version, session_id, BlockCoder(dialect.block_size), None)
    (answer,) = pair.client.read_block(stranger.to_block([stranger.response(CORR, ENT, Done())]))
    assert isinstance(answer.response, RemoteProtocolError)
    assert "another session" in str(answer.response)


def key_argument(der: bytes) -> bytes:
    return bytes((len(der),)) + der


ED_KEY = key_argument(base64.b64decode("MCowBQYDK2VwAyEAfAOflyvbJv1fszgzkQ6buiZJVgSpQWsucXq7U6zjMgY="))
X_KEY = key_argument(base64.b64decode("MCowBQYDK2VuAyEAriy+HcARIhqsgSjVnjKqoft+y6pxrxdY68zn4+LjYhQ="))
NEW = b"NEW " + ED_KEY + X_KEY + b"0S1M00"
ID8 = b"12345678"


def syntax_cases() -> Iterator[tuple[str, bytes, bytes, bytes, RouterError | None]]:
    """Section 3 of smp-tests.md; `None` where the store decides (AUTH) or the command is right."""
    fault = CommandFault
    yield "S1", b"", b"1234", b"HELLO", fault.UNKNOWN
    yield "S2", SIG0, b"", b"NEW", fault.SYNTAX
    yield "S3", SIG0, b"", b"NEW \x01A" + ED_KEY + X_KEY, fault.SYNTAX
    yield "S4", b"", b"", NEW, fault.NO_AUTH
    yield "S4 signed", SIG0, b"", NEW, None
    yield "S5", SIG0, ID8, NEW, fault.HAS_AUTH
    yield "S6", SIG0, ID8, b"KEY " + ED_KEY, None
    yield "S7", SIG0, ID8, b"KEY", fault.SYNTAX
    yield "S8", SIG0, ID8, b"KEY \x01A" + ED_KEY, fault.SYNTAX
    yield "S9", b"", ID8, b"KEY " + ED_KEY, fault.NO_AUTH
    yield "S10", SIG0, b"", b"KEY " + ED_KEY, fault.NO_AUTH
    for number, tag in enumerate((b"SUB", b"OFF", b"DEL")):
        yield f"S{11 + number}", SIG0, ID8, tag, None
        yield f"S{14 + number}", SIG0, ID8, tag + b"=", fault.UNKNOWN
        yield f"S{17 + number}", b"", ID8, tag, fault.NO_AUTH
        yield f"S{20 + number}", SIG0, b"", tag, fault.NO_AUTH
        yield f"{tag.decode()} and a space", SIG0, ID8, tag + b" ", fault.SYNTAX
        yield f"{tag.decode()} x", SIG0, ID8, tag + b" x", fault.SYNTAX
    yield "S23", SIG0, ID8, b"SEND F \x05hello", None
    yield "S24", SIG0, ID8, b"SEND", fault.SYNTAX
    yield "SEND T", SIG0, ID8, b"SEND T", fault.SYNTAX
    yield "SEND T and an empty body", SIG0, ID8, b"SEND T ", None
    yield "SEND with reserved flags", SIG0, ID8, b"SEND Txyz body", None
    yield "S25", SIG0, b"", b"SEND F \x05hello", fault.NO_ENTITY
    yield "S26", SIG0, ID8, b"ACK \x041234", None
    yield "S27", SIG0, ID8, b"ACK", fault.SYNTAX
    yield "S28", SIG0, b"", b"ACK \x041234", fault.NO_AUTH
    yield "S29", b"", ID8, b"ACK \x041234", fault.NO_AUTH
    yield "S30", b"", b"", b"PING", None
    yield "S31", SIG0, ID8, b"OK", fault.UNKNOWN
    yield (
        "KEY with a low-order point",
        SIG0,
        ID8,
        b"KEY " + key_argument(X.public.der_prefix + bytes(32)),
        fault.SYNTAX,
    )
    yield (
        "KEY with an X448 key",
        SIG0,
        ID8,
        b"KEY \x44" + bytes.fromhex("3042300506032b656f033900") + bytes(56),
        fault.SYNTAX,
    )


@pytest.mark.parametrize(
    ("auth", "entity", "command", "error"),
    [pytest.param(*case, id=name) for name, *case in syntax_cases()],
)
def test_syntax_and_credentials_are_checked_before_the_store(
    auth: bytes, entity: bytes, command: bytes, error: RouterError | None
) -> None:
    head = b"\x00" if not auth else bytes((len(auth),)) + auth + b"0"
    data = head + b"\x05corr1" + bytes((len(entity),)) + entity + command
    (received,) = plain_router().read_block(block_of(data))
    assert (received.corr_id, received.entity_id) == (b"corr1", entity)
    assert (received.error if isinstance(received, RefusedCommand) else None) == error
    if isinstance(received, ReceivedCommand) and auth:
        assert not plain_router().verifies(received, E.public)


@pytest.mark.parametrize("version", [11, 18])
def test_an_undecryptable_block_is_answered_with_block_and_the_next_is_read(version: int) -> None:
    pair = connect_smp(version)
    ping = pair.client.request(CORR, b"", Ping(), None)
    block = pair.client.to_block([ping])
    assert pair.router.read_block(block[::-1]) == [RefusedCommand(b"", b"", ErrorCode.BLOCK)]
    assert only(pair.router.read_block(pair.client.to_block([ping]))).command == Ping()
    answer = pair.router.to_block([pair.router.response(CORR, b"", Pong())])
    with pytest.raises(RemoteProtocolError, match="does not decrypt"):
        pair.client.read_block(answer[:-1] + b"\0")
    answer = pair.router.to_block([pair.router.response(CORR, b"", Pong())])
    assert pair.client.read_block(answer) == [ReceivedResponse(CORR, b"", Pong())]


@settings(max_examples=60)
@given(st.sampled_from([(SMP, 6), (SMP, 15), (SMP, 18), (NTF, 1), (NTF, 3)]), st.binary(max_size=120))
def test_any_content_is_read_or_refused_on_both_sides(where: tuple[Dialect, int], content: bytes) -> None:
    dialect, version = where
    coder = BlockCoder(dialect.block_size)
    block = pad(content, dialect.block_size)
    assert RouterSession(dialect, version, SID, coder, None).read_block(block)
    try:
        received = ClientSession(dialect, version, SID, coder, None).read_block(block)
    except RemoteProtocolError:
        return
    assert all(isinstance(item.response, Response | RemoteProtocolError) for item in received)


# ---- what a client refuses


@pytest.mark.parametrize(
    ("entity", "response", "fault"),
    [
        (ENT, QueueCreated(ENT, ENT, B), "HAS_AUTH"),
        (ENT, Pong(), "HAS_AUTH"),
        (b"", Subscribed(), "NO_ENTITY"),
        (b"", Done(), "NO_ENTITY"),
    ],
)
def test_an_answer_for_the_wrong_kind_of_entity_is_refused(
    entity: bytes, response: Response, fault: str
) -> None:
    router, client = plain_router(), plain_client()
    (answer,) = client.read_block(router.to_block([router.response(CORR, entity, response)]))
    assert isinstance(answer.response, RemoteProtocolError)
    assert fault in str(answer.response)
    assert (answer.corr_id, answer.entity_id) == (CORR, entity)


def test_an_error_may_name_an_entity_or_none() -> None:
    router, client = plain_router(), plain_client()
    for entity in (b"", ENT):
        (answer,) = client.read_block(
            router.to_block([router.response(b"", entity, Refused(ErrorCode.AUTH))])
        )
        assert answer.response == Refused(ErrorCode.AUTH)


def test_one_unreadable_answer_does_not_hide_the_others() -> None:
    router, client = plain_router(), plain_client()
    good = router.response(CORR, b"", Pong())
    wrong = b"\x00\x18" + CORR + b"\x00WHAT"
    cut = b"\x00\x18abc"
    first, second, third = client.read_block(router.to_block([wrong, cut, good]))
    assert isinstance(first.response, RemoteProtocolError)
    assert first.corr_id == CORR
    assert isinstance(second.response, RemoteProtocolError)
    assert (second.corr_id, second.entity_id) == (b"", b"")
    assert third == ReceivedResponse(CORR, b"", Pong())


# ---- services


@pytest.mark.parametrize("version", [16, 17, 18])
@pytest.mark.parametrize("key", [E, E448, X], ids=["ed25519", "ed448", "x25519"])
def test_a_service_signs_notifier_subscriptions_twice(version: int, key: AuthPrivateKey) -> None:
    pair = connect_service(version=version)
    request = pair.client.request(CORR, ENT, SubscribeNotifications(), key)
    received = only(pair.router.read_block(pair.client.to_block([request])))
    assert SERVICE_KEY.public.verifies(received.service_signature, received.authorized)
    assert service_fault(received, pair.router.service) is None
    assert pair.router.verifies(received, key.public)
    # The queue's key signed the fingerprint too: elsewhere the authorization proves nothing.
    assert not connect_smp(version).router.verifies(received, key.public)


@pytest.mark.parametrize("single", [False, True])
def test_a_service_signs_its_own_subscription_alone(single: bool) -> None:
    pair = connect_service(credentials=service_credentials(single=single))
    request = pair.client.request(CORR, SERVICE_ID, SubscribeServiceNotifications(), None)
    received = only(pair.router.read_block(pair.client.to_block([request])))
    assert received.service_signature == b""
    assert service_fault(received, pair.router.service) is None


def test_other_commands_of_a_service_are_signed_once() -> None:
    pair = connect_service(ServiceRole.MESSAGING)
    for command, entity, twice in ((DeleteQueue(), ENT, False), (CreateQueue(E.public, B), b"", True)):
        received = only(
            pair.router.read_block(pair.client.to_block([pair.client.request(CORR, entity, command, E)]))
        )
        assert bool(received.service_signature) == twice
        assert service_fault(received, pair.router.service) is None
        assert pair.router.verifies(received, E.public)


def test_sessions_do_not_show_secrets() -> None:
    pair: Pair = connect_service()
    secrets = [key.raw for key in (CLIENT_KEY, ROUTER_KEY, SERVICE_KEY)]
    secrets.append(service_credentials().private_key)
    request = pair.client.request(CORR, ENT, SubscribeNotifications(), E)
    received = only(pair.router.read_block(pair.client.to_block([request])))
    objects = [
        pair.client,
        pair.router,
        pair.client.service,
        pair.router.service,
        pair.client._coder,
        pair.client._authorizer,
        received,
    ]
    for item in objects:
        for secret in (*secrets, E.raw):
            assert repr(secret)[2:-1] not in repr(item)
    assert repr(ENT)[2:-1] not in repr(received)


def test_a_received_command_does_not_show_the_bytes_of_its_command() -> None:
    command = CreateQueue(E.public, B, password=b"s3cret-pw")
    received = only(plain_router().read_block(block_of(plain_client().request(CORR, b"", command, E))))
    assert b"s3cret-pw" in received.authorized
    assert "s3cret-pw" not in repr(received)


def test_a_service_does_not_subscribe_without_the_queues_key() -> None:
    pair = connect_service()
    with pytest.raises(LocalProtocolError, match="NSUB of a service needs the queue's key too"):
        pair.client.request(CORR, ENT, SubscribeNotifications(), None)
