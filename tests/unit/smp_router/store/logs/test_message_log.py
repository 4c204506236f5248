"""Lines of the message, notification and changes logs, both ways."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.unit.smp_router.store import samples
from tocsin.durable.log_fields import BadLogLine
from tocsin.smp_router.store.logs.message_log import (
    MessageAdded,
    MessageChange,
    MessageRemoved,
    NotificationAdded,
    NotificationRemoved,
    decode_change_line,
    decode_message_line,
    decode_notification_line,
    encode_change_line,
)
from tocsin.smp_router.store.records import StoredMessage, StoredNotification

MESSAGES: Final = [
    (
        MessageAdded(b"rrr", StoredMessage(b"mid", 17, 1, b"\xfb\xff")),
        b"v3 cnJy bWlk 17 flags=T -_8=",
    ),
    (MessageAdded(b"rrr", StoredMessage(b"mid", 17, 0, b"")), b"v3 cnJy bWlk 017 flags=F AA=="),
    (MessageAdded(b"rrr", StoredMessage(b"mid", 17, 0, b"\0")), b"v3 cnJy bWlk 17 flags=F AA=="),
    (MessageAdded(b"rrr", StoredMessage(b"mid", 0, 1, b"")), b"v3 cnJy bWlk 00 flags=T AA=="),
    (MessageAdded(b"rrr", StoredMessage(b"mid", 17, 2, b"\xfb")), b"v3 cnJy bWlk 0017 flags=T -w=="),
    (MessageAdded(b"rrr", StoredMessage(b"mid", 17, 3, b"\xfb")), b"v3 cnJy bWlk 000017 flags=T -w=="),
    (MessageAdded(b"rrr", StoredMessage(b"mid", 17, 2, b"\0")), b"v3 cnJy bWlk 0017 flags=T AA=="),
    (MessageAdded(b"rrr", StoredMessage(b"mid", 0, 3, b"")), b"v3 cnJy bWlk 000000 flags=T AA=="),
    (MessageAdded(b"rrr", StoredMessage(b"mid", 17, 0, None)), b"v3 cnJy bWlk 17 quota"),
]
NOTIFICATION: Final = NotificationAdded(b"ntf", StoredNotification(b"mid", 17, b"non", b"met"))


@pytest.mark.parametrize(("record", "line"), MESSAGES)
def test_message_has_this_line(record: MessageAdded, line: bytes) -> None:
    assert record.encode() == line
    assert decode_message_line(line) == record
    assert encode_change_line(record) == b"M " + line


def test_empty_body_is_also_read_as_the_reference_writes_it() -> None:
    """Which the reference itself cannot read (v7.md Appendix B)."""
    record = MessageAdded(b"rrr", StoredMessage(b"mid", 17, 0, b""))
    assert decode_message_line(b"v3 cnJy bWlk 17 flags=F ") == record


BASE64: Final = rb"[A-Za-z0-9_-]+={0,2}"
READABLE: Final = re.compile(rb"v3 %b %b [0-9]+ (?:quota|flags=[TF] %b)" % (BASE64, BASE64, BASE64))
"""A line that the reference can read: its base64 has at least one character."""


@given(samples.ids, samples.messages)
def test_reference_can_read_every_message(recipient_id: bytes, message: StoredMessage) -> None:
    assert READABLE.fullmatch(MessageAdded(recipient_id, message).encode())


def test_notification_has_this_line() -> None:
    line = b"v1 bnRm bWlk 17 bm9u bWV0"
    assert NOTIFICATION.encode() == line
    assert decode_notification_line(line) == NOTIFICATION
    assert encode_change_line(NOTIFICATION) == b"N " + line


def test_removals_have_these_lines() -> None:
    assert encode_change_line(MessageRemoved(b"rrr", b"mid")) == b"R cnJy bWlk"
    assert encode_change_line(NotificationRemoved(b"ntf", b"non")) == b"D bnRm bm9u"


CHANGES: Final[SearchStrategy[MessageChange]] = st.one_of(
    st.builds(MessageAdded, samples.ids, samples.messages),
    st.builds(MessageRemoved, samples.ids, samples.ids),
    st.builds(NotificationAdded, samples.ids, samples.notifications),
    st.builds(NotificationRemoved, samples.ids, samples.ids),
)


@given(CHANGES)
def test_what_is_written_is_read_back(change: MessageChange) -> None:
    line = encode_change_line(change)
    assert b"\n" not in line
    assert decode_change_line(line) == change


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"M",
        b"Q cnJy bWlk",
        b"M v4 cnJy bWlk 17 quota",
        b"M v3 cnJy bWlk 17 quota more",
        b"M v3 cnJy bWlk 17 flags=X aGVsbG8=",
        b"M v3 cnJy bWlk 17 aGVsbG8= flags=T",
        b"M v3 cnJy bWlk 17 flags=T",
        b"M v3 cnJy bWlk x flags=T aGVsbG8=",
        b"N v2 bnRm bWlk 17 bm9u bWV0",
        b"N v1 bnRm bWlk 17 bm9u",
        b"R cnJy",
        b"D bnRm bm9u bm9u",
    ],
)
def test_broken_line_is_refused(line: bytes) -> None:
    with pytest.raises(BadLogLine):
        decode_change_line(line)
