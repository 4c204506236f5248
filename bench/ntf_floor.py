"""The unavoidable cost of an NTF router: libraries and system calls from NMSG to push, with nothing around them.

For each block of notifications: one TLS record read and one block decrypted. For each notification: one box sealed,
its base64, one header block compressed. Then the requests written to TLS, the answers read and their headers
decompressed. Nothing is parsed, looked up, queued or stored. The other ends run in separate threads, whose CPU does
not count.
"""

from __future__ import annotations

import binascii
import hmac
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final

import nacl.bindings as sodium

from tocsin.crypto.credentials import Credentials
from tocsin.crypto.hsalsa20 import hsalsa20
from tocsin.push.apns.request import PATH, own_headers, shared_headers
from tocsin.push.http2.frames import END_HEADERS, END_STREAM, FrameType, RequestBlocks, frame_head
from tocsin.push.http2.hpack import Decoder
from tocsin.push.provider import PushRequest, Urgency
from tocsin.transport.tls_contexts import client_context, server_context

BLOCK_BYTES: Final = 16_384
PADDED_BYTES: Final = 3072
_ANSWER: Final = frame_head(1, FrameType.HEADERS, END_HEADERS | END_STREAM, 1) + b"\x88"


def seconds_per_notification(
    credentials: Credentials, notifications: int, per_block: int, pause: float = 0.0
) -> float:
    """CPU of this thread. With a pause before each block, caches and predictions are cold, as at a low load."""
    blocks = notifications // per_block
    smp = _pair(credentials, lambda peer: _send_blocks(peer, blocks, pause))
    apns = _pair(credentials, lambda peer: _answer(peer, blocks, per_block))
    key, payload_key = os.urandom(32), os.urandom(32)
    sealed = sodium.crypto_secretbox_easy(bytes(BLOCK_BYTES - 16), bytes(24), key)
    padded, nonce = bytes(PADDED_BYTES), os.urandom(24)
    encoder, decoder = RequestBlocks(), Decoder(16_384)
    shared = shared_headers(Urgency.ALERT, authority=b"localhost", topic=b"topic", authorization=None)
    push = PushRequest(os.urandom(32).hex().encode(), b"", Urgency.ALERT, "1" * 36, 1_700_000_000)
    frame = bytes(120)
    began = time.thread_time()
    for _ in range(blocks):
        _read(smp, BLOCK_BYTES)
        _chain_step(key)
        sodium.crypto_secretbox_open_easy(sealed, bytes(24), key)
        requests = []
        for _ in range(per_block):
            box_key = hsalsa20(payload_key, bytes(16))
            box = sodium.crypto_secretbox_easy(padded, nonce, box_key)
            text = binascii.b2a_base64(box, newline=False).replace(b"+", b"-").replace(b"/", b"_")
            block = encoder.encode_request(shared, PATH + push.device_token, own_headers(push))
            requests += [block, frame, text]
        together = b"".join(requests)
        apns.sendall(len(together).to_bytes(4, "big") + together)
        _read(apns, per_block * len(_ANSWER))
        for _ in range(per_block):
            decoder.decode(b"\x88")
    spent = time.thread_time() - began
    for sock in (smp, apns):
        sock.close()
    return spent / (blocks * per_block)


def _chain_step(chain_key: bytes) -> None:
    key = hmac.digest(bytes(64), chain_key, "sha512")
    first = hmac.digest(key, b"SimpleXSbChain\x01", "sha512")
    hmac.digest(key, first + b"SimpleXSbChain\x02", "sha512")
    hsalsa20(first[32:], bytes(16))


def _pair(credentials: Credentials, serve: Callable[[ssl.SSLSocket], None]) -> ssl.SSLSocket:
    """Our end; the other one is served in a thread."""
    serving = server_context(credentials, alpn=[], request_client_certificates=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dialed = socket.create_connection(listening.getsockname())
        accepted = listening.accept()[0]
    for each in (dialed, accepted):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run() -> None:
        with serving.wrap_socket(accepted, server_side=True) as peer:
            serve(peer)

    threading.Thread(target=run, daemon=True).start()
    return client_context(alpn=[], credentials=None).wrap_socket(dialed)


def _send_blocks(peer: ssl.SSLSocket, blocks: int, pause: float) -> None:
    block = bytes(BLOCK_BYTES)
    for _ in range(blocks):
        if pause:
            time.sleep(pause)
        peer.sendall(block)
    peer.recv(1)


def _answer(peer: ssl.SSLSocket, blocks: int, per_block: int) -> None:
    """Answers the requests of one block when their length, which comes first, has come."""
    for _ in range(blocks):
        _read(peer, int.from_bytes(_read(peer, 4), "big"))
        peer.sendall(_ANSWER * per_block)
    peer.recv(1)


def _read(sock: ssl.SSLSocket, size: int) -> bytes:
    """So many bytes; the last ones of them."""
    data = b""
    while size > 0:
        data = sock.recv(min(size, BLOCK_BYTES))
        size -= len(data)
    return data
