"""T1 to T12 of smp-tests.md, section 13: sizes follow from the real messages, counts from the packing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.appendix_a import CORR, ENT, MID, SID, B, E, N, a
from tocsin.crypto.keys import AuthPrivateKey
from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.protocol.messages import Command, Response
from tocsin.protocol.sessions import BlockCoder, ClientSession, RouterSession
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.recipient_commands import Subscribe
from tocsin.protocol.smp.responses import (
    MessageReceived,
    NotificationReceived,
    Subscribed,
    SubscriptionEnded,
)
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.wire.batches import (
    ITEM_OVERHEAD,
    MAX_ITEMS,
    BatchFiller,
    Packing,
    batch_budget,
    join_batch,
    pack,
    split_batch,
)

BUDGET = batch_budget(16384)


def request(version: int, command: Command, key: AuthPrivateKey = E) -> bytes:
    return ClientSession(SMP, version, SID, BlockCoder(SMP.block_size), B).request(CORR, ENT, command, key)


def response(message: Response, corr_id: bytes = b"") -> bytes:
    return RouterSession(SMP, 18, SID, BlockCoder(SMP.block_size), None).response(corr_id, ENT, message)


def send(size: int) -> SendMessage:
    return SendMessage(MessageFlags(True), b"x" * size)


SUB6, SUB18 = request(6, Subscribe()), request(18, Subscribe())
SOK = response(Subscribed(), CORR)
END = response(SubscriptionEnded())
NMSG = response(NotificationReceived(N, bytes(144)))
MSG = response(MessageReceived(MID, bytes(16048)), CORR)


def counts(packing: Packing) -> list[int]:
    return [batch.stop - batch.start for batch in packing.batches]


def test_the_budget_is_16365_bytes() -> None:
    assert BUDGET == 16365
    assert batch_budget(512) == 493


@pytest.mark.parametrize(
    ("item", "size"),
    [
        (SUB6, 153),
        (SUB18, 121),
        (request(6, send(100)), 157 + 100),
        (request(18, send(100), a), 141 + 100),
        (END, 32),
        (NMSG, 203),
        (SOK, 58),
        (MSG, 82 + 16048),
    ],
)
def test_items_have_the_sizes_of_the_table(item: bytes, size: int) -> None:
    assert len(item) + ITEM_OVERHEAD == size


@pytest.mark.parametrize(
    ("items", "expected", "too_large"),
    [
        pytest.param([SUB6] * 250, [38, 106, 106], [], id="T1"),
        pytest.param([SUB18] * 300, [30, 135, 135], [], id="T2"),
        pytest.param([SUB6] * 60 + [request(6, send(8000))] + [SUB6] * 40, [47, 54], [], id="T3"),
        pytest.param([SUB18] * 60 + [request(18, send(8000), a)] + [SUB18] * 40, [33, 68], [], id="T4"),
        pytest.param([SUB6] * 50 + [request(6, send(17000))] + [SUB6] * 150, [50, 44, 106], [50], id="T5"),
        pytest.param(
            [SUB18] * 60 + [request(18, send(17000), a)] + [SUB18] * 150, [60, 15, 135], [60], id="T6"
        ),
        pytest.param([request(6, send(17000))] + [SUB6] * 200, [94, 106], [0], id="T7"),
        pytest.param([request(18, send(17000), a)] + [SUB18] * 210, [75, 135], [0], id="T8"),
        pytest.param([END] * 300, [45, 255], [], id="T9"),
        pytest.param([NMSG] * 200, [40, 80, 80], [], id="T10"),
        pytest.param([SOK] * 4 + [MSG], [5], [], id="T11, four"),
        pytest.param([SOK] * 5 + [MSG], [1, 5], [], id="T11, five"),
        pytest.param([SUB18] * 3 + [request(18, send(17000), a)], [3], [3], id="too large at the end"),
        pytest.param([bytes(BUDGET - 102), bytes(98)], [2], [], id="exactly full"),
        pytest.param([bytes(BUDGET - 101), bytes(98)], [1, 1], [], id="one byte too many"),
        pytest.param([], [], [], id="nothing"),
    ],
)
def test_items_are_packed_as_the_reference_does(
    items: list[bytes], expected: list[int], too_large: list[int]
) -> None:
    packing = pack(items, BUDGET)
    assert counts(packing) == expected
    assert packing.too_large == too_large
    for batch in packing.batches:
        assert 0 < len(join_batch(items[batch])) <= 16382


@pytest.mark.parametrize(
    ("items", "blocks"),
    [
        pytest.param([SUB6] * 250, 250, id="as T1"),
        pytest.param([SUB18] * 300, 300, id="as T2"),
        pytest.param([SUB6] * 60 + [request(6, send(8000))] + [SUB6] * 40, 101, id="as T3"),
        pytest.param([SUB18] * 60 + [request(18, send(8000), a)] + [SUB18] * 40, 101, id="as T4"),
        pytest.param([SUB6] * 50 + [request(6, send(17000))] + [SUB6] * 150, 200, id="as T5"),
        pytest.param([SUB18] * 60 + [request(18, send(17000), a)] + [SUB18] * 150, 210, id="as T6"),
    ],
)
def test_t12_items_that_are_sent_one_by_one_have_legal_blocks_unless_they_are_too_large(
    items: list[bytes], blocks: int
) -> None:
    coder, legal = BlockCoder(SMP.block_size), 0
    for item in items:
        if len(item) < 17000:
            assert len(coder.to_block(join_batch([item]))) == SMP.block_size
            legal += 1
        else:
            with pytest.raises(LocalProtocolError):
                coder.to_block(join_batch([item]))
    assert legal == blocks


@given(st.lists(st.binary(max_size=30), max_size=40), st.integers(8, 60))
def test_packing_keeps_every_item_once_and_in_order(items: list[bytes], budget: int) -> None:
    packing = pack(items, budget)
    indices = [index for batch in packing.batches for index in range(batch.start, batch.stop)]
    assert sorted(indices + packing.too_large) == list(range(len(items)))
    assert indices == sorted(indices)
    assert packing.too_large == [i for i, item in enumerate(items) if len(item) + ITEM_OVERHEAD > budget]
    for batch in packing.batches:
        assert sum(len(item) + ITEM_OVERHEAD for item in items[batch]) <= budget


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=MAX_ITEMS))
def test_a_batch_is_split_into_its_items(items: list[bytes]) -> None:
    assert split_batch(join_batch(items)) == items


@given(st.binary(max_size=60))
def test_any_bytes_are_a_batch_or_refused(content: bytes) -> None:
    try:
        items = split_batch(content)
    except DecodeError:
        return
    assert join_batch(items) == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "without transmissions"),
        (b"\x00", "without transmissions"),
        (b"\x00\x00\x01a", "without transmissions"),
        (b"\x01", "longer than its block"),
        (b"\x01\x00", "longer than its block"),
        (b"\x01\x00\x02a", "longer than its block"),
        (b"\x02\x00\x01a", "longer than its block"),
        (b"\xff\xff\xff", "longer than its block"),
        (b"\x01\x00\x01ab", "1 bytes left over"),
    ],
)
def test_a_malformed_batch_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        split_batch(content)


@pytest.mark.parametrize("items", [[b""] * 256, [bytes(65536)]])
def test_what_no_block_can_hold_is_refused_before_it_is_sent(items: list[bytes]) -> None:
    with pytest.raises(LocalProtocolError, match="than a block can hold"):
        join_batch(items)


def test_a_filler_takes_items_until_the_budget_is_used() -> None:
    filler = BatchFiller(10)
    assert filler.fits(bytes(8))
    assert not filler.fits(bytes(9))
    filler.add(bytes(3))
    assert len(filler) == 1
    assert filler.fits(bytes(3))
    assert not filler.fits(bytes(4))
    assert filler.take() == [bytes(3)]
    assert len(filler) == 0
    assert filler.fits(bytes(8))


def test_a_filler_takes_255_items_at_most() -> None:
    filler = BatchFiller(BUDGET)
    for _ in range(MAX_ITEMS):
        assert filler.fits(b"")
        filler.add(b"")
    assert not filler.fits(b"")
