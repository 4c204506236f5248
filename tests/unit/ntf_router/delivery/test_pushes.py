"""What goes into a message push."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ntf_router.store.samples import token
from tocsin.ntf_router.delivery.pushes import (
    MOST_NOTIFICATIONS,
    choose_notifications,
    code_push_id,
    message_push_id,
    periodic_push_id,
)
from tocsin.ntf_router.store.records import LastNotification, PendingNotification
from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.ntf.pushes import PADDED_PUSH_BYTES, notification_text, parse_notification_list
from tocsin.protocol.ntf.subscription_commands import NotifierQueue
from tocsin.wire.padding import LENGTH_BYTES

ROUTER = RouterLocation(("smp.example.com",), "", bytes(32))

TOKEN = token("phone")


def last(number: int, *, pending: bool, host_bytes: int = 0, meta_bytes: int = 144) -> LastNotification:
    router = RouterLocation(("h" * host_bytes,), "", bytes(32)) if host_bytes else ROUTER
    queue, nonce = NotifierQueue(router, os.urandom(24)), os.urandom(24)
    text = notification_text(queue, 1_700_000_000 + number, nonce, os.urandom(meta_bytes))
    if pending:
        return PendingNotification(1_700_000_000.0 + number, nonce, text, os.urandom(24), queue)
    return LastNotification(1_700_000_000.0 + number, nonce, text)


def test_without_anything_pending_nothing_is_pushed() -> None:
    assert choose_notifications(TOKEN, []) is None
    assert choose_notifications(TOKEN, [last(1, pending=False)]) is None


def test_what_was_pushed_before_fills_the_room_newest_last() -> None:
    notifications = [last(number, pending=number == 3) for number in range(9)]
    contents = choose_notifications(TOKEN, notifications)
    assert contents is not None
    # The pending one, and the five newest of the others.
    assert contents.chosen == [notifications[3], *notifications[4:9]]
    assert contents.pending == [notifications[3]]
    assert not contents.more


def test_more_than_six_pending_ones_take_turns_oldest_first() -> None:
    notifications = [last(number, pending=True) for number in range(8)]
    contents = choose_notifications(TOKEN, notifications)
    assert contents is not None
    assert contents.chosen == contents.pending == notifications[:6]
    assert contents.more


def test_a_list_that_would_be_too_long_is_cut() -> None:
    """The reference pushes nothing at all then (Appendix B 20): six items of 545 characters."""
    notifications = [last(number, pending=number == 5, host_bytes=255) for number in range(6)]
    contents = choose_notifications(TOKEN, notifications)
    assert contents is not None
    assert contents.chosen[-1] == notifications[5]
    assert len(contents.chosen) == 5
    assert len(contents.text) <= PADDED_PUSH_BYTES - LENGTH_BYTES
    pending = [last(number, pending=True, host_bytes=255) for number in range(6)]
    contents = choose_notifications(TOKEN, pending)
    assert contents is not None
    assert contents.chosen == contents.pending == pending[:5]
    assert contents.more


def test_one_that_fits_no_push_is_not_chosen() -> None:
    contents = choose_notifications(TOKEN, [last(0, pending=True, meta_bytes=3000)])
    assert contents is not None
    assert contents.chosen == contents.pending == []
    assert contents.more


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 600)), min_size=1, max_size=20))
def test_whatever_is_pending_is_chosen_or_more_follows(kinds: list[tuple[bool, int]]) -> None:
    notifications = [
        last(number, pending=pending, host_bytes=size) for number, (pending, size) in enumerate(kinds)
    ]
    contents = choose_notifications(TOKEN, notifications)
    waiting = [each for each in notifications if each.pending]
    if contents is None:
        assert not waiting
        return
    chosen = contents.chosen
    assert 1 <= len(chosen) <= MOST_NOTIFICATIONS
    assert len(contents.text) <= PADDED_PUSH_BYTES - LENGTH_BYTES
    assert list(chosen) == sorted(chosen, key=lambda each: each.received_at)
    taken = [each for each in chosen if each.pending]
    assert taken == contents.pending == waiting[: len(taken)]
    assert contents.more == (len(taken) < len(waiting))
    read_back = parse_notification_list(contents.text.decode())
    assert [item.nonce for item in read_back] == [each.nonce for each in chosen]
    assert [item.text().encode() for item in read_back] == [each.text for each in chosen]


def test_push_ids_are_uuids_that_repeat_with_their_content() -> None:
    nonces = [os.urandom(24), os.urandom(24)]
    assert message_push_id(b"ab", nonces) == message_push_id(b"ab", nonces)
    different = {
        message_push_id(b"ab", nonces),
        message_push_id(b"abab", nonces),
        message_push_id(b"ab", nonces[::-1]),
        message_push_id(b"ab", nonces[:1]),
        code_push_id(b"ab", b"code"),
        code_push_id(b"ab", b"other"),
        periodic_push_id(b"ab", 1),
        periodic_push_id(b"ab", 2),
    }
    assert len(different) == 8
    for push_id in different:
        assert [len(part) for part in push_id.split("-")] == [8, 4, 4, 4, 12]
        assert push_id[14] == "8"
