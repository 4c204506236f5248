"""Lines of the control port."""

from __future__ import annotations

import pytest

from tocsin.errors import DecodeError
from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.smp_router.control_commands import (
    COMMAND_HELP,
    Authenticate,
    BlockQueue,
    ControlCommand,
    OnQueue,
    Plain,
    Word,
    parse_control_line,
)

QUEUE, QUEUE_TEXT = b"\x01" * 24, "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"
SPAM = Blocked(BlockReason.SPAM)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("", None),
        ("  \r\n", None),
        ("auth secret", Authenticate("secret")),
        ("auth two words\r\n", Authenticate("two words")),
        ("stats\n", Plain(Word.STATS)),
        ("socket-threads", Plain(Word.SOCKET_THREADS)),
        (f"status {QUEUE_TEXT}", OnQueue(Word.STATUS, QUEUE)),
        (f"unblock {QUEUE_TEXT}", OnQueue(Word.UNBLOCK, QUEUE)),
        (f"delete  {QUEUE_TEXT}", OnQueue(Word.DELETE, QUEUE)),
        (f"block {QUEUE_TEXT} reason=spam", BlockQueue(QUEUE, SPAM)),
        (
            f'block {QUEUE_TEXT} reason=content,notice={{"ttl": 86400}}',
            BlockQueue(QUEUE, Blocked(BlockReason.CONTENT, BlockNotice(86400))),
        ),
    ],
)
def test_line_is_the_command_it_should_be(line: str, command: ControlCommand | None) -> None:
    assert parse_control_line(line) == command


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hidden", "unknown command"),
        ("STATS", "unknown command"),
        ("stats hidden", "expected: stats"),
        ("auth", "expected: auth <password>"),
        ("status", "expected: status <senderId>"),
        ("delete hidden!", "not base64url text"),
        ("block", "expected: block <senderId>"),
        (f"block {QUEUE_TEXT}", "BLOCKED without a reason"),
        (f"block {QUEUE_TEXT} reason=boredom", "unknown error word"),
        (f"block {QUEUE_TEXT} reason=spam,notice=hidden", "not JSON"),
    ],
)
def test_what_is_no_command_is_refused_without_repeating_it(line: str, says: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_control_line(line)
    assert says in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_every_word_has_help() -> None:
    assert set(COMMAND_HELP) == set(Word)
    for word, explained in COMMAND_HELP.items():
        assert explained.usage.split()[0] == word
        assert explained.about
