"""Lines that an executor reads from segments, and its answers."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.delivery_engines import Meeting
from tocsin.ntf_router.delivery.handover_lines import HandedLine, decode_returned, probe_line, probe_number
from tocsin.pipeline.delivery.handover_pusher import HandoverPusher, newest_of_tokens
from tocsin.push.settings import ApnsSettings


def test_of_a_token_that_was_handed_over_twice_the_last_counts() -> None:
    lines = [
        (folder, HandedLine(str(number), token, b""))
        for number, (folder, token) in enumerate([(0, "a"), (0, "b"), (1, "a"), (0, "a")])
    ]
    assert [line.id for _, line in newest_of_tokens(lines)] == ["1", "2", "3"]


def test_lines_that_cannot_be_opened_are_answered_and_gone_segments_are_none(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / "handover")
    meeting.opened()
    assert meeting.key
    text = b'{"id":"x-1","token":"00","box":"AAAA"}\n' + probe_line(probe_number("x-2")) + b"torn"
    (meeting.folder / "pending-1-1-1.jsonl").write_bytes(text)
    pusher = HandoverPusher((meeting.folder,), (meeting.keys,), ApnsSettings(endpoints={}), 1.0)
    [answers] = pusher([(0, "pending-1-1-1.jsonl"), (0, "pending-2-1-1.jsonl")], 0, 1)
    assert answers.counts == {"retry": 1}
    assert [decode_returned(line).id for line in answers.lines.splitlines()] == ["x-1", "x-2-probe"]
    assert b"unreadable" in answers.lines
    assert pusher([(0, "pending-2-1-1.jsonl")], 0, 1) == []
