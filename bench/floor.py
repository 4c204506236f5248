"""The unavoidable cost: the cryptography of the commands and of their blocks, and TLS, with nothing around it.

A bare pipeline echoes blocks over TLS with `window` blocks in flight, and at each end calls the cryptographic
libraries on those bytes, as often as the protocol requires: keys are loaded beforehand, nothing is parsed,
correlated, queued or allocated that the libraries do not allocate themselves. Nothing of `tocsin` runs here but the
making of TLS contexts and the HSalsa20 call.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import nacl.bindings as sodium
from cryptography.hazmat.primitives.asymmetric import ed448

from tocsin.crypto.credentials import Credentials
from tocsin.crypto.hsalsa20 import hsalsa20
from tocsin.transport.tls_contexts import client_context, server_context

TAG_BYTES: Final = 16


class BareAuthorization(Protocol):
    """The cost of one command for the client, and then for the router."""

    def authorize(self, message: bytes) -> bytes: ...
    def verify(self, authorization: bytes, message: bytes) -> None: ...


class Ed25519:
    def __init__(self) -> None:
        self._public, self._secret = sodium.crypto_sign_seed_keypair(os.urandom(32))

    def authorize(self, message: bytes) -> bytes:
        return sodium.crypto_sign(message, self._secret)

    def verify(self, authorization: bytes, message: bytes) -> None:
        sodium.crypto_sign_open(authorization, self._public)


class Ed448:
    def __init__(self) -> None:
        self._secret = ed448.Ed448PrivateKey.generate()
        self._public = self._secret.public_key()

    def authorize(self, message: bytes) -> bytes:
        return self._secret.sign(message)

    def verify(self, authorization: bytes, message: bytes) -> None:
        self._public.verify(authorization, message)


class X25519Agreed:
    """The key agreement is done."""

    def __init__(self) -> None:
        self._key, self._nonce = os.urandom(32), os.urandom(24)

    def authorize(self, message: bytes) -> bytes:
        return sodium.crypto_secretbox_easy(hashlib.sha512(message).digest(), self._nonce, self._key)

    def verify(self, authorization: bytes, message: bytes) -> None:
        digest = sodium.crypto_secretbox_open_easy(authorization, self._nonce, self._key)
        hmac.compare_digest(digest, hashlib.sha512(message).digest())


class X25519FirstUse(X25519Agreed):
    """Each side agrees on a key first."""

    def __init__(self) -> None:
        super().__init__()
        self._private, self._peer = os.urandom(32), sodium.crypto_scalarmult_base(os.urandom(32))

    def authorize(self, message: bytes) -> bytes:
        sodium.crypto_scalarmult(self._private, self._peer)
        return super().authorize(message)

    def verify(self, authorization: bytes, message: bytes) -> None:
        sodium.crypto_scalarmult(self._private, self._peer)
        super().verify(authorization, message)


class BareBlocks:
    """Encryption of blocks: one chain step and one box each. The chain does not advance, so any block opens."""

    def __init__(self) -> None:
        self._chain_key = os.urandom(32)

    def _step(self) -> tuple[bytes, bytes]:
        key = hmac.digest(bytes(64), self._chain_key, "sha512")
        first = hmac.digest(key, b"SimpleXSbChain\x01", "sha512")
        second = hmac.digest(key, first + b"SimpleXSbChain\x02", "sha512")
        return hsalsa20(first[32:], bytes(16)), second[:24]

    def seal(self, padded: bytes) -> bytes:
        key, nonce = self._step()
        return sodium.crypto_secretbox_easy(padded, nonce, key)

    def unseal(self, block: bytes) -> bytes:
        key, nonce = self._step()
        return sodium.crypto_secretbox_open_easy(block, nonce, key)


@dataclass(frozen=True, slots=True)
class Load:
    """One measurement."""

    block_size: int
    encrypted: bool
    blocks: int
    commands: int
    message: bytes
    """The bytes that one authorization covers."""
    authorization: Callable[[], BareAuthorization]


async def seconds_per_command(load: Load, credentials: Credentials, window: int = 16) -> float:
    """CPU of both ends together."""
    pipeline = _Pipeline(load, *await _connected_pair(credentials))
    return await pipeline.run(window) / load.commands


class _Pipeline:
    """The client's and the router's end of one connection, in one event loop."""

    def __init__(self, load: Load, router: ssl.SSLSocket, client: ssl.SSLSocket) -> None:
        self._load = load
        self._router, self._client = router, client
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._padded = bytes(load.block_size - (TAG_BYTES if load.encrypted else 0))
        self._coder = BareBlocks()
        self._auth = load.authorization()
        self._under_way: deque[list[bytes]] = deque()
        """Authorizations of each block that was sent and not read yet."""
        self._sent = self._answered = self._authorized = 0

    async def run(self, window: int) -> float:
        self._loop.add_reader(self._router.fileno(), self._answer)
        self._loop.add_reader(self._client.fileno(), self._collect)
        began = time.process_time()
        for _ in range(min(window, self._load.blocks)):
            self._send()
        await self._finished
        spent = time.process_time() - began
        for each in (self._router, self._client):
            self._loop.remove_reader(each.fileno())
            each.close()
        return spent

    def _send(self) -> None:
        load = self._load
        self._sent += 1
        due = load.commands * self._sent // load.blocks
        self._under_way.append([self._auth.authorize(load.message) for _ in range(due - self._authorized)])
        self._authorized = due
        self._client.send(self._sealed())

    def _answer(self) -> None:
        block = _read_block(self._router, self._load.block_size)
        if block is None:
            return
        self._open(block)
        for authorization in self._under_way.popleft():
            self._auth.verify(authorization, self._load.message)
        self._router.send(self._sealed())
        if self._router.pending():
            self._loop.call_soon(self._answer)

    def _collect(self) -> None:
        block = _read_block(self._client, self._load.block_size)
        if block is None:
            return
        self._open(block)
        self._answered += 1
        if self._answered == self._load.blocks:
            self._finished.set_result(None)
            return
        if self._sent < self._load.blocks:
            self._send()
        if self._client.pending():
            self._loop.call_soon(self._collect)

    def _sealed(self) -> bytes:
        return self._coder.seal(self._padded) if self._load.encrypted else self._padded

    def _open(self, block: bytes) -> None:
        if self._load.encrypted:
            self._coder.unseal(block)


def _read_block(sock: ssl.SSLSocket, size: int) -> bytes | None:
    """A block is one TLS record here, so one read returns all of it."""
    try:
        data = sock.recv(size)
    except ssl.SSLWantReadError:
        return None
    if len(data) != size:
        raise RuntimeError("the bare pipeline read a part of a block: the floor would be wrong")
    return data


async def _connected_pair(credentials: Credentials) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Router and client after a TLS handshake over loopback."""
    serving = server_context(credentials, alpn=[], request_client_certificates=False)
    dialing = client_context(alpn=[], credentials=None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dialed = socket.create_connection(listening.getsockname())
        accepted = listening.accept()[0]
    router, client = await asyncio.gather(
        asyncio.to_thread(serving.wrap_socket, accepted, True), asyncio.to_thread(dialing.wrap_socket, dialed)
    )
    for each in (router, client):
        each.setblocking(False)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return router, client
