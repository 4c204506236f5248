"""V1 to V5 of smp-tests.md, section 15."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.strategies import u16s, version_ranges
from tocsin.errors import DecodeError
from tocsin.wire.reader import WireReader
from tocsin.wire.versions import VersionRange
from tocsin.wire.writer import WireWriter

R = VersionRange


def test_an_empty_range_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="2 to 1"):
        R(2, 1)
    assert R(1, 1).highest == 1
    assert R(1, 2).highest == 2


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (R(1, 1), R(1, 1), R(1, 1)),
        (R(1, 1), R(1, 2), R(1, 1)),
        (R(1, 2), R(1, 2), R(1, 2)),
        (R(1, 2), R(2, 3), R(2, 2)),
        (R(1, 3), R(2, 3), R(2, 3)),
        (R(1, 3), R(2, 4), R(2, 3)),
        (R(1, 2), R(3, 4), None),
    ],
)
def test_the_common_range_does_not_depend_on_the_order(
    one: VersionRange, other: VersionRange, common: VersionRange | None
) -> None:
    assert one.common(other) == common
    assert other.common(one) == common


def test_a_range_contains_its_ends_and_nothing_outside() -> None:
    assert 1 in R(1, 2)
    assert 2 in R(1, 2)
    assert 2 not in R(1, 1)
    assert 1 not in R(2, 2)


@given(version_ranges, version_ranges)
def test_the_version_agreed_on_is_in_both_ranges(one: VersionRange, other: VersionRange) -> None:
    common = one.common(other)
    if common is None:
        assert one.highest < other.lowest or other.highest < one.lowest
    else:
        assert common.highest in one
        assert common.highest in other
        assert common.highest == min(one.highest, other.highest)


def test_a_range_is_written_as_people_write_it() -> None:
    assert str(R(1, 4)) == "1-4"
    assert str(R(4, 4)) == "4"


def test_a_range_has_the_encoding_of_appendix_a1() -> None:
    out = WireWriter()
    R(6, 18).encode(out)
    assert out.done().hex() == "00060012"


@given(u16s, u16s)
def test_a_range_is_decoded_or_refused_when_empty(lowest: int, highest: int) -> None:
    body = WireReader(WireWriter().u16(lowest).u16(highest).done())
    if lowest <= highest:
        assert VersionRange.decode(body) == R(lowest, highest)
    else:
        with pytest.raises(DecodeError, match="empty version range"):
            VersionRange.decode(body)
