"""The newest messages and pushes, and which push announced which message."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin.web.live_history import LiveHistory, MessageStep, SeenPush, SentMessage


def sent(history: LiveHistory, text: str = "hello", sender: str = "Alice") -> SentMessage:
    message = history.sending(sender, "Bob", text, 10.0, mention=False, expects_push=True, by_hand=True)
    history.stored(message, 10.1)
    return message


def pushed(history: LiveHistory, *message_ids: bytes) -> SeenPush:
    push = history.pushed("Bob", b"{}", "phone-2", 10.5)
    history.woken(push, 10.6)
    item: dict[str, Any] = {"router": "smp.example", "notifierId": "abcdefghijklmn", "receivedAt": 10}
    push.items = [dict(item) for _ in message_ids]
    push.announced = {message_id: position for position, message_id in enumerate(message_ids)}
    return push


def test_a_message_gets_the_times_of_the_first_push_that_announced_it() -> None:
    history = LiveHistory()
    message = sent(history)
    first = pushed(history, b"other", b"m1")
    pushed(history, b"m1")
    assert history.fetched("Bob", "Alice", "hello", b"m1", 10, 10.7) is message
    assert message.push == first.number
    assert list(message.times) == [
        MessageStep.SENT,
        MessageStep.STORED,
        MessageStep.SMP_TIME,
        MessageStep.FETCHED,
        MessageStep.PUSHED,
        MessageStep.WOKEN,
        MessageStep.NTF_TIME,
    ]
    assert history.counts == {"sent": 1, "stored": 1, "pushed": 2, "woken": 2, "fetched": 1}


def test_a_push_that_arrives_after_its_message_was_fetched_is_linked() -> None:
    history = LiveHistory()
    message = sent(history)
    history.fetched("Bob", "Alice", "hello", b"m1", 10, 10.7)
    assert history.push(message.push) is None
    late = pushed(history, b"m1")
    assert history.opened(late) == [message]
    assert history.push(message.push) is late
    assert history.opened(late) == []


def test_equal_texts_are_distinguished_by_sender_and_order() -> None:
    history = LiveHistory()
    first, second = sent(history), sent(history)
    of_carol = sent(history, sender="Carol")
    assert history.fetched("Bob", "Carol", "hello", b"m3", 10, 11.0) is of_carol
    assert history.fetched("Bob", "Alice", "hello", b"m1", 10, 11.0) is first
    assert history.fetched("Bob", None, "hello", b"m2", 10, 11.0) is second
    assert history.fetched("Bob", "Alice", "hello", b"m4", 10, 11.0) is None
    assert history.fetched("Carol", "Alice", "hello", b"m5", 10, 11.0) is None


def test_only_the_newest_are_remembered() -> None:
    history = LiveHistory(most_messages=2, most_pushes=1)
    numbers = [sent(history, str(number)).number for number in range(3)]
    assert len(history) == 2
    assert history.message(numbers[0]) is None
    assert [message.text for message in history.newest()] == ["1", "2"]
    old, new = pushed(history), pushed(history)
    assert history.push(old.number) is None
    assert history.push(new.number) is new
    assert history.push(None) is None
    assert history.counts["sent"] == 3


def test_a_message_knows_the_engine_of_its_push_and_engines_their_usual_time() -> None:
    history = LiveHistory()
    for number, (engine, at) in enumerate(
        [("inline", 10.2), ("spark", 10.6), ("spark", 11.6), ("spark", 10.7)]
    ):
        message = sent(history, str(number))
        push = history.pushed("Bob", b"{}", "phone-2", at, engine)
        push.items, push.announced = [{}], {b"m%d" % number: 0}
        history.fetched("Bob", "Alice", str(number), b"m%d" % number, 10, 12.0)
        assert message.summary()["engine"] == engine
    stored = history.newest()[0].times[MessageStep.STORED]
    assert history.usual_seconds("spark") == pytest.approx(10.7 - stored)
    assert history.usual_seconds("inline") == pytest.approx(10.2 - stored)
    assert history.usual_seconds("other") is None
    assert history.pushes_by == {"inline": 1, "spark": 3}
