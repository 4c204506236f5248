from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import queue_information
from tocsin.errors import DecodeError
from tocsin.protocol.smp.queue_information import (
    DeliveryState,
    HeadMessage,
    MessageKind,
    QueueInformation,
    SubscriptionInformation,
)


def test_absent_parts_are_left_out() -> None:
    information = QueueInformation(False, True, None, 0, None)
    assert information.to_json() == b'{"qiSnd":false,"qiNtf":true,"qiSize":0}'


def test_keys_have_the_order_of_the_reference_and_ids_are_standard_base64() -> None:
    information = QueueInformation(
        True,
        False,
        SubscriptionInformation(DeliveryState.NONE, b"\xfb\xff"),
        129,
        HeadMessage(b"\xfb\xff\xfe", "2026-11-15T08:01:45.123Z", MessageKind.QUOTA),
    )
    assert information.to_json() == (
        b'{"qiSnd":true,"qiNtf":false,"qiSub":{"qSubThread":"noSub","qDelivered":"+/8="},"qiSize":129,'
        b'"qiMsg":{"msgId":"+//+","msgTs":"2026-11-15T08:01:45.123Z","msgType":"quota"}}'
    )


@given(queue_information)
def test_information_is_read_back(information: QueueInformation) -> None:
    assert QueueInformation.from_json(information.to_json()) == information


def test_unknown_keys_are_ignored() -> None:
    data = b'{"qiSnd":true,"qiNtf":true,"qiSize":1,"qiNew":[],"qiSub":null}'
    assert QueueInformation.from_json(data) == QueueInformation(True, True, None, 1, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"null",
        b'"text"',
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"qiSnd":true,"qiNtf":true}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":"many"}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":1e999}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":null}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":1,"qiSub":1}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":1,"qiSub":{}}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":1,"qiSub":{"qSubThread":"other"}}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":1,"qiSub":{"qSubThread":"noSub","qDelivered":"%"}}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":1,"qiSub":{"qSubThread":"noSub","qDelivered":1}}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":1,"qiMsg":{"msgId":"AA==","msgTs":""}}',
        b'{"qiSnd":true,"qiNtf":true,"qiSize":1,"qiMsg":{"msgId":"AA==","msgTs":"","msgType":"x"}}',
    ],
)
def test_other_json_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        QueueInformation.from_json(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        QueueInformation.from_json(data)
