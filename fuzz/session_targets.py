"""Sessions after the handshake: whole blocks in, commands or responses out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from fuzz import fixed_parties as fixed
from fuzz.contract import attempt, choose, demand, demand_equal
from tocsin.crypto.block_chains import BlockChain, ChainKeys, initial_chain_keys
from tocsin.errors import LocalProtocolError, RemoteProtocolError
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.sessions import (
    BlockCoder,
    ClientSession,
    ReceivedCommand,
    ReceivedResponse,
    RefusedCommand,
    RouterSession,
    ServicePeer,
    ServiceRole,
    ServiceSession,
)
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.services import service_fault
from tocsin.protocol.smp.versions import ENCRYPTED_BLOCK_VERSION, SERVICE_CERTS_VERSION

SERVICE_ID: Final = b"service id of 24 bytes.."
_SECRET: Final = fixed.CLIENT_SESSION_KEY.agree(fixed.ROUTER_SESSION_KEY.public)
_CHAIN_KEYS: Final[ChainKeys] = initial_chain_keys(fixed.SESSION_ID, _SECRET)


class Setting(NamedTuple):
    """What a handshake agreed on."""

    dialect: Dialect
    version: int
    encrypted: bool = False
    service: ServiceRole | None = None


SETTINGS: Final = (
    *(Setting(dialect, version) for dialect, version in fixed.VERSIONS),
    *(Setting(SMP, version, encrypted=True) for version in (ENCRYPTED_BLOCK_VERSION, SMP.supported.highest)),
    *(Setting(SMP, SERVICE_CERTS_VERSION, service=role) for role in ServiceRole),
)


def _router(setting: Setting) -> RouterSession:
    peer = None
    if setting.service is not None:
        key = fixed.SERVICE_SESSION_KEY.public
        peer = ServicePeer(SERVICE_ID, fixed.SERVICE.fingerprint, setting.service, key)
    coder = _coder(setting, _CHAIN_KEYS.server_to_client, _CHAIN_KEYS.client_to_server)
    return RouterSession(
        setting.dialect, setting.version, fixed.SESSION_ID, coder, fixed.ROUTER_SESSION_KEY, peer
    )


def _client(setting: Setting) -> ClientSession:
    service = None
    if setting.service is not None:
        service = ServiceSession(SERVICE_ID, fixed.SERVICE.fingerprint, fixed.SERVICE_SESSION_KEY)
    coder = _coder(setting, _CHAIN_KEYS.client_to_server, _CHAIN_KEYS.server_to_client)
    key = fixed.ROUTER_SESSION_KEY.public
    return ClientSession(setting.dialect, setting.version, fixed.SESSION_ID, coder, key, service)


def _coder(setting: Setting, outgoing: bytes, incoming: bytes) -> BlockCoder:
    if not setting.encrypted:
        return BlockCoder(setting.dialect.block_size)
    return BlockCoder(setting.dialect.block_size, BlockChain(outgoing), BlockChain(incoming))


def _raw_block(setting: Setting, outgoing: bytes, data: bytes) -> bytes:
    return data


def _content(setting: Setting, outgoing: bytes, data: bytes) -> bytes:
    """A block that a peer with the right keys made."""
    return _coder(setting, outgoing, outgoing).to_block(data)


def _transmission(setting: Setting, outgoing: bytes, data: bytes) -> bytes:
    """… around one transmission, so that mutation need not keep its length right."""
    if setting.version < setting.dialect.batches_from:
        return _content(setting, outgoing, data)
    return _content(setting, outgoing, b"\x01" + len(data).to_bytes(2, "big") + data)


SHAPES: Final[tuple[Callable[[Setting, bytes, bytes], bytes], ...]] = (_content, _transmission, _raw_block)


def router_session(data: bytes) -> None:
    """`RouterSession.read_block` never raises, and every refusal can be answered."""
    setting, data = choose(data, SETTINGS)
    shape, data = choose(data, SHAPES)
    block = attempt(lambda: shape(setting, _CHAIN_KEYS.client_to_server, data), LocalProtocolError)
    if block is None:
        return  # more than a block holds
    router = _router(setting)
    received = router.read_block(block)
    demand(len(received) > 0, "a block is answered")
    client = _client(setting)
    for each in received:
        if isinstance(each, RefusedCommand):
            _answer(router, client, each)
        else:
            _verify(router, each)
    after = router.read_block(b"\0\1\0")
    demand_equal(after, [RefusedCommand(b"", b"", ErrorCode.BLOCK)], "garbage does not end a session")


def _answer(router: RouterSession, client: ClientSession, refused: RefusedCommand) -> None:
    answer = router.response(refused.corr_id, refused.entity_id, Refused(refused.error))
    block = attempt(lambda: router.to_block([answer]), LocalProtocolError)
    if block is None:
        # Ids may take up to 512 bytes, which is all of an NTF block.
        demand(len(answer) > router.dialect.budget, "only an answer that is too long has no block")
        return
    expected = ReceivedResponse(refused.corr_id, refused.entity_id, Refused(refused.error))
    demand_equal(client.read_block(block), [expected], "the client reads the refusal")


def _verify(router: RouterSession, received: ReceivedCommand) -> None:
    """No key and no check may raise; and nobody but the fixed parties signs."""
    service_fault(received, router.service)
    router.pretend_to_verify(received)
    for key in (fixed.ENTITY_KEY.public, fixed.ENTITY_KEY_448.public, fixed.ENTITY_DH_KEY.public):
        router.verifies(received, key)
    demand(
        not router.verifies(received, fixed.OPERATOR_KEY.public), "a key that signs nothing verifies nothing"
    )


def client_session(data: bytes) -> None:
    """`ClientSession.read_block` gives responses, or raises `RemoteProtocolError` for the whole block."""
    setting, data = choose(data, SETTINGS)
    shape, data = choose(data, SHAPES)
    block = attempt(lambda: shape(setting, _CHAIN_KEYS.server_to_client, data), LocalProtocolError)
    if block is None:
        return
    client = _client(setting)
    received = attempt(lambda: client.read_block(block), RemoteProtocolError)
    for each in received or ():
        if not isinstance(each.response, RemoteProtocolError):
            _send_again(setting, each)


def _send_again(setting: Setting, received: ReceivedResponse) -> None:
    """The router's session writes the same answer, and the client's reads it as the same."""
    assert not isinstance(received.response, RemoteProtocolError)
    router, client = _router(setting), _client(setting)
    wire = router.response(received.corr_id, received.entity_id, received.response)
    block = attempt(lambda: router.to_block([wire]), LocalProtocolError)
    if block is None:
        return  # an authorization was left out and the session id came in, or the text grew
    (again,) = client.read_block(block)
    demand_equal(again[:2], received[:2], "corr id and entity are read back")
    demand(not isinstance(again.response, RemoteProtocolError), "what the router writes the client reads")
