"""What is inside boxes: proxy envelopes, delivered messages, notification metadata, encrypted blocks.

A fuzzer cannot forge a box, so each input is tried twice: as the box, and as what a peer who has the key sealed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from fuzz.contract import attempt, choose, demand_equal
from fuzz.fixed_parties import BOX_KEY, NONCE
from tocsin.crypto.block_chains import BlockChain
from tocsin.crypto.boxes import BoxKey, seal
from tocsin.errors import BadBox, DecodeError, LocalProtocolError
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

T = TypeVar("T")

_REVERSED: Final = NONCE[::-1]


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
