"""Message pushes: pure decisions about which of a token's last notifications one push carries (ntf.md 2.8, 3.1).

A push carries at most six notifications, newest last, in at most 3,070 bytes. The reference takes the six newest and
never pushes a list that is too long. Here every pending notification gets its turn, oldest first. Notifications that
were pushed before fill the remaining room, so that a device that missed a push learns of them from the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.ntf_router.store.records import LastNotification, PendingNotification, TokenRecord
from tocsin.protocol.ntf.pushes import MAX_LIST_BYTES

MOST_NOTIFICATIONS: Final = 6


class NotificationPush(msgspec.Struct, frozen=True, gc=False):
    """One push of notifications to a token."""

    token: TokenRecord
    chosen: Sequence[LastNotification]
    """Oldest first. Empty if the oldest pending notification is larger than a push."""
    pending: Sequence[PendingNotification]
    """The chosen ones that get the outcome of this push."""
    text: bytes
    """The list of notifications, before encryption."""
    more: bool
    """Some pending notifications had no room: another push must follow."""
    attempt: int = 0
    """How often this push has failed before."""


def choose_notifications(
    token: TokenRecord, last: Sequence[LastNotification], attempt: int = 0
) -> NotificationPush | None:
    """Choose the next push to a token, or return None if nothing is pending. `last` is ordered by time."""
    pending = [each for each in last if isinstance(each, PendingNotification)]
    if not pending:
        return None
    if len(last) <= MOST_NOTIFICATIONS:
        text = b";".join([each.text for each in last])
        if len(text) <= MAX_LIST_BYTES:  # nearly always: nothing has to be chosen
            return NotificationPush(token, last, pending, text, False, attempt)
    chosen, taken = _choose(last, pending)
    text = b";".join([each.text for each in chosen])
    return NotificationPush(token, chosen, taken, text, len(taken) < len(pending), attempt)


def _choose(
    last: Sequence[LastNotification], pending: Sequence[PendingNotification]
) -> tuple[list[LastNotification], Sequence[PendingNotification]]:
    """Return the chosen notifications, and the pending ones among them."""
    chosen: list[LastNotification] = []
    room = MAX_LIST_BYTES + 1  # each needs its text and a separator, except the last
    for waiting in pending[:MOST_NOTIFICATIONS]:
        room -= len(waiting.text) + 1
        if room < 0:
            break
        chosen.append(waiting)
    taken = pending[: len(chosen)]
    if len(taken) == len(pending):
        for each in reversed(last):
            if each.pending:
                continue
            room -= len(each.text) + 1
            if len(chosen) == MOST_NOTIFICATIONS or room < 0:
                break
            chosen.append(each)
        chosen.sort(key=lambda each: each.received_at)
    return chosen, taken
