"""Contents of boxes: proxy envelopes, delivered messages, notification metadata, encrypted blocks.

A fuzzer cannot forge a box, so each input is tried twice: as the box, and as the content of a genuine box.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from fuzz.contract import attempt, choose, demand, demand_equal
from fuzz.fixed_parties import BOX_KEY, NONCE
from tocsin.crypto.block_chains import BlockChain
from tocsin.crypto.boxes import BoxKey, box_key, seal
from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.crypto.web_push import MAX_PADDED_BYTES, WebPushSecret, seal_web_push
from tocsin.errors import BadBox, DecodeError, LocalProtocolError
from tocsin.protocol.direct.ntf_keys import NtfKeyOffer
from tocsin.protocol.direct.packets import PADDED_BYTES, open_packet, packet_nonce, seal_packet
from tocsin.protocol.ntf.web_push_contents import parse_web_push_content, web_push_content
from tocsin.protocol.smp.delivered_messages import (
    NotificationMeta,
    decode_delivered,
    seal_delivered,
    seal_meta,
    unseal_delivered,
    unseal_meta,
)
from tocsin.protocol.smp.proxying import (
    RelayAnswerEnvelope,
    RelayEnvelope,
    seal_forwarded,
    seal_forwarded_answer,
    unseal_forwarded,
    unseal_forwarded_answer,
)
from tocsin.wire.padding import pad

T = TypeVar("T")

_REVERSED: Final = NONCE[::-1]
NTF_KEY: Final = X25519PrivateKey(b"\x05" * 32)
EPHEMERAL: Final = X25519PrivateKey(b"\x06" * 32)
OFFER: Final = NtfKeyOffer(NTF_KEY.public, 1_900_000_000)
DEVICE: Final = WebPushSecret(b"\x07" * 48)


def direct_packet(data: bytes) -> None:
    """What an SMP router hands over for a device: the packet, and what a device has sealed."""
    keys = {OFFER.key_id: NTF_KEY}
    forged = attempt(lambda: open_packet(data, keys), DecodeError)
    demand_equal(forged, None, "a packet that nobody sealed does not open")
    padded = attempt(lambda: pad(data, PADDED_BYTES), LocalProtocolError)
    if padded is None:
        return
    secret = box_key(EPHEMERAL.agree(OFFER.key))
    packet = (
        OFFER.key_id + EPHEMERAL.public.raw + seal(secret, packet_nonce(EPHEMERAL.public, OFFER.key), padded)
    )
    opened = attempt(lambda: open_packet(packet, keys), DecodeError)
    if opened is None:
        return
    statement = opened.statement
    signer = Ed25519PrivateKey(bytes(32))
    again = attempt(
        lambda: seal_packet(
            statement, ntf_identity=bytes(32), token_key=signer, offer=OFFER, ephemeral=EPHEMERAL
        ),
        LocalProtocolError,
    )
    if again is not None:
        read = open_packet(again, keys)
        demand_equal(read.statement, statement, "a statement is read back")
        demand(read.signed_by(signer.public, bytes(32)), "its signature is right")
        demand(not read.signed_by(signer.public, bytes(31) + b"1"), "and for one NTF router only")


def _opened(
    unseal: Callable[[BoxKey, bytes, bytes], T], data: bytes, nonce: bytes = NONCE
) -> tuple[T | None, bytes]:
    """What comes out of `data` as it is (nothing, ever), then out of a genuine box around it."""
    forged = attempt(lambda: unseal(BOX_KEY, NONCE, data), BadBox, DecodeError)
    demand_equal(forged, None, "a box that nobody sealed does not open")
    sealed = seal(BOX_KEY, nonce, data)
    return attempt(lambda: unseal(BOX_KEY, NONCE, sealed), DecodeError), sealed


def _forwarded(data: bytes) -> None:
    inner, _ = _opened(unseal_forwarded, data)
    if inner is not None:
        again = unseal_forwarded(BOX_KEY, NONCE, seal_forwarded(BOX_KEY, NONCE, inner))
        demand_equal(again, inner, "a forwarded transmission is read back")


def _forwarded_answer(data: bytes) -> None:
    inner, _ = _opened(unseal_forwarded_answer, data, _REVERSED)
    if inner is not None:
        again = unseal_forwarded_answer(BOX_KEY, NONCE, seal_forwarded_answer(BOX_KEY, NONCE, inner))
        demand_equal(again, inner, "a forwarded answer is read back")


def _relay(data: bytes) -> None:
    envelope, sealed = _opened(RelayEnvelope.unseal, data)
    if envelope is not None:
        demand_equal(envelope.seal(BOX_KEY, NONCE), sealed, "a relay envelope has one form")


def _relay_answer(data: bytes) -> None:
    envelope, sealed = _opened(RelayAnswerEnvelope.unseal, data, _REVERSED)
    if envelope is not None:
        demand_equal(envelope.seal(BOX_KEY, NONCE), sealed, "a relay's answer has one form")


ENVELOPES: Final[tuple[Callable[[bytes], None], ...]] = (_forwarded, _forwarded_answer, _relay, _relay_answer)


def proxy_envelope(data: bytes) -> None:
    """Both layers of a forwarded command and of its answer."""
    check, data = choose(data, ENVELOPES)
    check(data)


def _delivered(data: bytes) -> None:
    _opened(unseal_delivered, data)
    message = attempt(lambda: decode_delivered(data), DecodeError)
    if message is None:
        return
    demand_equal(message.encode(), data, "a delivered message has one form")
    sealed = attempt(lambda: seal_delivered(BOX_KEY, NONCE, message), LocalProtocolError)
    if sealed is not None:
        demand_equal(unseal_delivered(BOX_KEY, NONCE, sealed), message, "a sealed message is read back")


def _meta(data: bytes) -> None:
    _opened(unseal_meta, data)
    meta = attempt(lambda: NotificationMeta.decode(data), DecodeError)
    if meta is None:
        return
    demand_equal(data[: len(meta.encode())], meta.encode(), "the known fields of metadata have one form")
    sealed = attempt(lambda: seal_meta(BOX_KEY, NONCE, meta), LocalProtocolError)
    if sealed is not None:
        demand_equal(unseal_meta(BOX_KEY, NONCE, sealed), meta, "sealed metadata is read back")


def _chained_blocks(data: bytes) -> None:
    sender, receiver = BlockChain(NONCE), BlockChain(NONCE)
    sender.seal(data)
    demand_equal(attempt(lambda: receiver.unseal(data), BadBox), None, "a forged block does not open")
    demand_equal(receiver.unseal(sender.seal(data)), data, "the block after a forged one opens")


SEALED: Final[tuple[Callable[[bytes], None], ...]] = (_delivered, _meta, _chained_blocks)


def delivered_message(data: bytes) -> None:
    """The bodies of MSG and NMSG, and encrypted blocks."""
    check, data = choose(data, SEALED)
    check(data)


def web_push(data: bytes) -> None:
    """The body of a Web Push, and its content."""
    attempt(lambda: DEVICE.open(data), BadBox)
    push = attempt(lambda: parse_web_push_content(data), DecodeError)
    if push is not None and not data.startswith(b"{"):  # JSON can be written in many ways
        demand_equal(web_push_content(push), data, "the content of a Web Push has one form")
    if len(data) < MAX_PADDED_BYTES:
        padded_to = min(len(data) + 9, MAX_PADDED_BYTES)
        body = seal_web_push(data, DEVICE.receiver, EPHEMERAL.raw, NONCE[:16], padded_to=padded_to)
        demand_equal(DEVICE.open(body), data, "a body is opened")
