"""What goes into a message push: pure decisions about a token's last notifications (ntf.md 2.8, 3.1).

A push carries at most six notifications, newest last, in at most 3,070 bytes. The reference takes the six newest and
never pushes a list that is too long. Here everything that is pending gets its turn, oldest first; what was pushed
before fills the room that is left, so that a device which missed a push learns of it from the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.ntf_router.store.records import LastNotification, PendingNotification
from tocsin.protocol.ntf.pushes import MAX_LIST_BYTES

MOST_NOTIFICATIONS: Final = 6


class PushContents(msgspec.Struct, frozen=True, gc=False):
    chosen: Sequence[LastNotification]
    """Oldest first, newest last."""
    pending: Sequence[PendingNotification]
    """Those among them that get an outcome."""
    text: bytes
    """The list, as it is encrypted."""
    more: bool
    """Pending notifications had no room: another push must follow."""


def choose_notifications(last: Sequence[LastNotification]) -> PushContents | None:
    """None if nothing is pending. `last` is ordered by time."""
    pending = [each for each in last if isinstance(each, PendingNotification)]
    if not pending:
        return None
    if len(last) <= MOST_NOTIFICATIONS:
        text = b";".join([each.text for each in last])
        if len(text) <= MAX_LIST_BYTES:  # nearly always: nothing has to be chosen
            return PushContents(last, pending, text, more=False)
    return _choose(last, pending)


def _choose(last: Sequence[LastNotification], pending: Sequence[PendingNotification]) -> PushContents:
    chosen: list[LastNotification] = []
    room = MAX_LIST_BYTES + 1  # each takes its text and a separator, but for the last
    for waiting in pending[:MOST_NOTIFICATIONS]:
        room -= len(waiting.text) + 1
        if room < 0:
            break
        chosen.append(waiting)
    taken = pending[: len(chosen)]
    more = len(taken) < len(pending)
    if not more:
        for each in reversed(last):
            if each.pending:
                continue
            room -= len(each.text) + 1
            if len(chosen) == MOST_NOTIFICATIONS or room < 0:
                break
            chosen.append(each)
        chosen.sort(key=lambda each: each.received_at)
    return PushContents(chosen, taken, b";".join([each.text for each in chosen]), more)
