"""Lines of logs: words, and kinds of lines that have a word for each field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tocsin.durable.log_fields import FIELD, NUMBER, BadLogLine, LineOfWords, decode_line, with_rest
from tocsin.ntf_router.store.logs import change_log as _ntf_changes  # noqa: F401 - its lines are looked for
from tocsin.smp_router.store.logs import direct_log as _direct_lines  # noqa: F401 - as above
from tocsin.smp_router.store.logs import store_log as _smp_lines  # noqa: F401 - as above


@dataclass(frozen=True, slots=True)
class Sample(LineOfWords):
    tag: ClassVar[bytes] = b"SAMPLE"
    forms = FIELD, NUMBER

    name: bytes
    number: int


KINDS = {Sample.tag: Sample}


def test_a_line_of_words_has_a_word_for_each_field() -> None:
    line = Sample(b"abc", 7).encode()
    assert line == b"SAMPLE YWJj 7"
    assert decode_line(line, KINDS) == Sample(b"abc", 7)


@pytest.mark.parametrize(
    "line", [b"SAMPLE YWJj", b"SAMPLE YWJj 7 8", b"SAMPLE", b"OTHER YWJj 7", b"", b"SAMPLE  7"]
)
def test_a_line_of_other_words_is_refused(line: bytes) -> None:
    with pytest.raises(BadLogLine):
        decode_line(line, KINDS)


def test_every_kind_of_line_has_a_form_for_each_field() -> None:
    kinds = set(every_kind(LineOfWords)) - {Sample}
    assert len(kinds) > 10
    for kind in kinds:
        assert len(kind.forms) == len(kind.__match_args__), kind


def every_kind(kind: type[LineOfWords]) -> Iterator[type[LineOfWords]]:
    for each in kind.__subclasses__():
        if "__match_args__" in vars(each) and "__slots__" in vars(each):
            yield each
        yield from every_kind(each)


def test_the_last_word_may_reach_to_the_end() -> None:
    assert with_rest([b"a", b"b", b"c", b"d"], 3) == [b"a", b"b", b"c d"]
    assert with_rest([b"a", b"b"], 2) == [b"a", b"b"]
    with pytest.raises(BadLogLine):
        with_rest([b"a"], 2)
