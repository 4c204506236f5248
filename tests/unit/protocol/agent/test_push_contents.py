"""Lists in pushes that are only partly readable."""

from __future__ import annotations

import pytest

from tests.doubles.agent_samples import SMP
from tocsin.crypto.boxes import box_key, seal
from tocsin.errors import BadBox, DecodeError
from tocsin.protocol.agent.push_contents import open_notifications
from tocsin.protocol.ntf.pushes import MessagePush, PushedNotification, seal_notifications
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.wire.padding import pad

KEY = box_key(b"k" * 32)
NONCE = b"n" * 24
ITEM = PushedNotification(NotifierQueue(SMP, b"i" * 24), 1_700_000_000, NONCE, b"meta")


def test_list_is_read() -> None:
    assert open_notifications(KEY, seal_notifications(KEY, NONCE, [ITEM, ITEM])) == [ITEM, ITEM]


def test_broken_item_hides_no_other() -> None:
    text = f"{ITEM.text()};smp://nonsense;{ITEM.text()}"
    first, broken, last = open_notifications(
        KEY, MessagePush(NONCE, seal(KEY, NONCE, pad(text.encode(), 3072)))
    )
    assert first == last == ITEM
    assert isinstance(broken, DecodeError)


def test_list_under_another_key_is_not_read() -> None:
    with pytest.raises(BadBox):
        open_notifications(box_key(b"x" * 32), seal_notifications(KEY, NONCE, [ITEM]))


def test_list_that_is_no_text_is_refused() -> None:
    with pytest.raises(DecodeError):
        open_notifications(KEY, MessagePush(NONCE, seal(KEY, NONCE, pad(b"\xff", 3072))))
