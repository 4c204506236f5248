"""What each party can see of one notification: pure. The general table is in docs/architecture.md."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from tocsin.web.live_history import SeenPush, SentMessage, Step


class Sight(StrEnum):
    ALL = "all"
    PART = "part"
    NOTHING = "nothing"


COLUMNS: Final = ("which queue", "metadata: message id and time", "content")


def who_sees_what(message: SentMessage, push: SeenPush | None) -> dict[str, Any]:
    """Rows in the order of the way. What the NTF router and the provider see is known from the push."""
    rows = [
        _row(
            f"{message.sender}’s phone",
            (Sight.PART, "the sender’s id of the queue, not the others"),
            (Sight.PART, "when it sent the message"),
            (Sight.ALL, f"“{message.text}”"),
        ),
        _row(
            "SMP router",
            (Sight.ALL, "all ids of the queue, but nobody behind them"),
            (Sight.ALL, "it gives both, and seals them for the recipient"),
            (Sight.NOTHING, "a sealed block of one fixed size"),
        ),
    ]
    if push is None:
        reason = "no push was opened yet" if message.expects_push else "there is no notification"
        unseen = [(Sight.NOTHING, reason)] * len(COLUMNS)
        rows += [_row(party, *unseen) for party in ("NTF router", "push provider")]
    else:
        item = push.items[push.told[message.message_id]] if message.message_id in push.told else {}
        rows += [
            _row(
                "NTF router",
                (
                    Sight.PART,
                    f"the notifier’s id {short(item.get('notifierId', ''))} at {item.get('router', '?')}",
                ),
                (Sight.PART, "the second in which it heard of it; the message’s id and time are sealed"),
                (Sight.NOTHING, "it never gets the message"),
            ),
            _row(
                "push provider",
                (Sight.NOTHING, f"only the device: {push.device_token}"),
                (Sight.PART, "when it passed"),
                (Sight.NOTHING, f"{len(push.payload):,} bytes, the same for every push with messages"),
            ),
        ]
    receiver = f"{message.receiver}’s phone"
    if Step.FETCHED in message.times:
        connection = f"its connection with {message.sender}"
        opened = "opened with the secret of the queue"
        rows.append(
            _row(receiver, (Sight.ALL, connection), (Sight.ALL, opened), (Sight.ALL, f"“{message.text}”"))
        )
    else:
        rows.append(_row(receiver, *[(Sight.NOTHING, "it has not fetched the message yet")] * len(COLUMNS)))
    return {"columns": list(COLUMNS), "rows": rows}


def short(text: str) -> str:
    """Enough of an id to recognise it."""
    return text if len(text) <= 10 else f"{text[:8]}…"


def _row(party: str, *cells: tuple[Sight, str]) -> dict[str, Any]:
    return {"party": party, "cells": [{"sight": sight.value, "text": text} for sight, text in cells]}
