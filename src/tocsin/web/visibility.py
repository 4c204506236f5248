"""The facts that each party can see of one notification: pure. docs/architecture.md has the general table."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from tocsin.web.live_history import MessageStep, SeenPush, SentMessage


class Visibility(StrEnum):
    ALL = "all"
    PART = "part"
    NOTHING = "nothing"


COLUMNS: Final = ("which queue", "metadata: message ID and time", "content")


def visibility_table(message: SentMessage, push: SeenPush | None) -> dict[str, Any]:
    """One row per party, in the order of the path. The push shows what the NTF router and the provider saw."""
    rows = [
        _row(
            f"{message.sender}’s phone",
            (Visibility.PART, "the sender ID of the queue, no other ID"),
            (Visibility.PART, "when it sent the message"),
            (Visibility.ALL, f"“{message.text}”"),
        ),
        _row(
            "SMP router",
            (Visibility.ALL, "all IDs of the queue, but not who uses them"),
            (Visibility.ALL, "it assigns both and seals them for the recipient"),
            (Visibility.NOTHING, "a sealed block of fixed size"),
        ),
    ]
    if push is None:
        reason = "no push has been opened yet" if message.expects_push else "there is no notification"
        unseen = [(Visibility.NOTHING, reason)] * len(COLUMNS)
        rows += [_row(party, *unseen) for party in ("NTF router", "push provider")]
    else:
        item = push.items[push.announced[message.message_id]] if message.message_id in push.announced else {}
        notifier_id, router = shorten(item.get("notifierId", "")), item.get("router", "?")
        rows += [
            _row(
                "NTF router",
                (Visibility.PART, f"the notifier ID {notifier_id} at {router}"),
                (Visibility.PART, "the second in which NMSG arrived; the message’s ID and time are sealed"),
                (Visibility.NOTHING, "it never gets the message"),
            ),
            _row(
                "push provider",
                (Visibility.NOTHING, f"only the device: {push.device_token}"),
                (Visibility.PART, "when the push passed"),
                (Visibility.NOTHING, f"{len(push.payload):,} bytes, the same for every push with messages"),
            ),
        ]
    if MessageStep.FETCHED in message.times:
        seen = (
            (Visibility.ALL, f"its connection with {message.sender}"),
            (Visibility.ALL, "opened with the queue’s secret"),
            (Visibility.ALL, f"“{message.text}”"),
        )
    else:
        unfetched = (Visibility.NOTHING, "it has not fetched the message yet")
        seen = (unfetched, unfetched, unfetched)
    rows.append(_row(f"{message.receiver}’s phone", *seen))
    return {"columns": list(COLUMNS), "rows": rows}


def shorten(text: str) -> str:
    """Keeps enough of an ID to recognise it."""
    return text if len(text) <= 10 else f"{text[:8]}…"


def _row(party: str, *cells: tuple[Visibility, str]) -> dict[str, Any]:
    return {
        "party": party,
        "cells": [{"visibility": visibility.value, "text": text} for visibility, text in cells],
    }
