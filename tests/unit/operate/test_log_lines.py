"""One line for each message, without control characters."""

from __future__ import annotations

import io
import logging
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.operate.log_lines import SHORT, EscapingFormatter, escape

CONTROLS = [
    chr(number) for number in range(0x110000) if unicodedata.category(chr(number)) in {"Cc", "Cf", "Zl", "Zp"}
]


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(EscapingFormatter(SHORT))
    logger = logging.getLogger("a test of log lines")
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, text
    logger.removeHandler(handler)
    handler.close()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("smp.example", "smp.example"),
        ("bücher.example", "bücher.example"),
        ("a\nERROR: forged", "a\\nERROR: forged"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\x00b\x7f", "a\\x00b\\x7f"),
        ("\u202e", "\\u202e"),
    ],
)
def test_what_does_not_print_is_escaped(
    log: tuple[logging.Logger, io.StringIO], text: str, line: str
) -> None:
    logger, written = log
    logger.error("the name %s cannot be resolved", text)
    assert written.getvalue() == f"ERROR: the name {line} cannot be resolved\n"


def test_half_a_character_is_escaped() -> None:
    """Not logged here: pytest's workers cannot report what is not UTF-8."""
    assert escape("\ud800") == "\\ud800"


def test_no_control_character_passes() -> None:
    assert len(CONTROLS) > 200
    assert all(escape(each).isprintable() for each in CONTROLS)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_one_printable_line(text: str) -> None:
    assert escape(text).isprintable()
    escape(text).encode()


def test_a_traceback_keeps_its_lines_but_not_the_text_of_strangers(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, written = log
    try:
        raise ValueError("evil \x1b[31m text")
    except ValueError:
        logger.exception("failed")
    lines = written.getvalue().splitlines()
    assert lines[0] == "ERROR: failed"
    assert lines[-1] == "ValueError: evil \\x1b[31m text"
    assert len(lines) > 3
