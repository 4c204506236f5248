"""Header blocks of requests that are alike."""

from __future__ import annotations

import os
import random

import pytest

from tocsin.push.http2.header_blocks import OwnHeader, RequestBlocks, SharedHeaders
from tocsin.push.http2.hpack import Decoder, Header


def shared(kind: bytes, authorization: bytes = b"bearer x") -> SharedHeaders:
    return SharedHeaders(
        (
            (b":authority", b"api.example.com", False),
            (b":scheme", b"https", False),
            (b":method", b"POST", False),
        ),
        (
            (b"apns-topic", b"app", False),
            (b"apns-push-type", kind, False),
            (b"authorization", authorization, False),
        ),
    )


ID, EXPIRATION = OwnHeader(b"apns-id"), OwnHeader(b"apns-expiration")


def expected(
    headers: SharedHeaders, path: bytes, own: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    return [
        *((name, value) for name, value, _ in headers.before_path),
        (b":path", path),
        *((name, value) for name, value, _ in headers.after_path),
        *own,
    ]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_sent_between_them_requests_are_read_as_they_were_meant(seed: int) -> None:
    """By a decoder that sees all of a connection's blocks: an old reference would name another header."""
    chance = random.Random(seed)
    blocks, decoder = RequestBlocks(), Decoder(1 << 16)
    kinds = [shared(b"alert"), shared(b"background")]
    for number in range(400):
        if chance.random() < 0.05:
            kinds[chance.randrange(2)] = shared(
                chance.choice([b"alert", b"background"]), b"bearer %d" % number
            )
        if chance.random() < 0.05:
            other: list[Header] = [(b":method", b"GET", False), (b"x-%d" % number, b"y" * 50, False)]
            found = decoder.decode(blocks.encode(other))
            assert [(name, value) for name, value, _ in found] == [(n, v) for n, v, _ in other]
        if chance.random() < 0.02:
            blocks.change_table_size(chance.choice([512, 1024, 4096]))
        headers = chance.choice(kinds)
        path = b"/3/device/" + os.urandom(chance.choice([2, 32, 100, 300])).hex().encode()
        values = b"1" * chance.choice([36, 126, 127, 300]), b"%d" % number
        own = ID.encode(values[0]) + EXPIRATION.encode(values[1])
        found = decoder.decode(blocks.encode_request(headers, path, own))
        named = list(zip((ID.name, EXPIRATION.name), values, strict=True))
        assert [(name, value) for name, value, _ in found] == expected(headers, path, named)


def test_what_is_the_same_is_sent_as_references() -> None:
    blocks, headers = RequestBlocks(), shared(b"alert")
    sizes = [len(blocks.encode_request(headers, b"/p", ID.encode(b"1"))) for _ in range(3)]
    assert sizes[0] > sizes[1] == sizes[2]
    assert sizes[2] == 6 + 4 + 1 + 8 + 2


def test_a_requests_own_headers_are_never_indexed() -> None:
    """Device tokens must not stay in any table on the way."""
    decoder = Decoder(1 << 16)
    block = RequestBlocks().encode_request(shared(b"alert"), b"/secret", ID.encode(b"1"))
    never = {name for name, _, sensitive in decoder.decode(block) if sensitive}
    assert never == {b":path", b"apns-id"}
