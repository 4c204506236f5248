"""RSLV, RNAME and the record inside (v7.md 3, Appendix A)."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import DecodeError
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.names import NameResolved, ResolveName, name_record, parse_name

VECTOR: Final = (
    b'{"name":"alice.simplex","nickname":"","website":"","location":"","simplexContact":["https://x/a#k"],'
    b'"simplexChannel":[],"eth":null,"btc":null,"xmr":null,"dot":null,"owner":"0x00","resolver":"0x00"}'
)


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        (b"RSLV alice.simplex", "alice.simplex"),
        (b"RSLV Alice.SIMPLEX", "alice.simplex"),
        (b"RSLV a.b.testing more words", "a.b.testing"),
        (b"RSLV a-b-c.example\n", "a-b-c.example"),
        (b"RSLV 1.2\t", "1.2"),
        (b"RSLV " + b"a" * 63 + b".example", "a" * 63 + ".example"),
    ],
)
def test_names_end_with_white_space_and_are_taken_in_small_letters(wire: bytes, name: str) -> None:
    command = SMP.commands.decode(wire, 20)
    assert command == ResolveName(name)
    assert SMP.commands.decode(command.encode(20), 20) == command


@pytest.mark.parametrize(
    "wire",
    [
        b"RSLV",
        b"RSLV ",
        b"RSLV  alice.simplex",
        b"RSLV alice",
        b"RSLV .simplex",
        b"RSLV alice.",
        b"RSLV alice..simplex",
        b"RSLV -alice.simplex",
        b"RSLV alice-.simplex",
        b"RSLV al--ice.simplex",
        b"RSLV al_ice.simplex",
        "RSLV älice.simplex".encode(),
        b"RSLV \xffalice.simplex",
        b"RSLV alice.simplex\0",
        b"RSLV " + b"a" * 64 + b".example",
        b"RSLV " + b".".join([b"a" * 50] * 5),
    ],
)
def test_what_is_no_name_is_a_syntax_error(wire: bytes) -> None:
    with pytest.raises(DecodeError):
        SMP.commands.decode(wire, 20)


def test_longest_name() -> None:
    longest = b".".join([b"a" * 63] * 3 + [b"a" * 61])
    assert len(longest) == 253
    assert parse_name(longest) == longest.decode()
    with pytest.raises(DecodeError, match="too long"):
        parse_name(longest + b"a")


@given(st.binary(max_size=300) | st.from_regex(rb"[a-zA-Z0-9.-]{0,80}", fullmatch=True))
def test_any_bytes_are_a_name_or_an_error(data: bytes) -> None:
    try:
        name = parse_name(data)
    except DecodeError:
        return
    assert re.fullmatch(r"[a-z0-9.-]{3,253}", name)
    assert name.encode() == data.lower()
    assert parse_name(name.encode()) == name
    assert all(0 < len(label) < 64 and label.strip("-") == label for label in name.split("."))
    assert "--" not in name


def test_record_is_the_vector() -> None:
    assert name_record(VECTOR) == VECTOR
    assert NameResolved(VECTOR).encode(20) == b"RNAME " + VECTOR
    assert SMP.responses.decode(b"RNAME " + VECTOR, 20) == NameResolved(VECTOR)


def test_members_are_put_in_order_and_unknown_ones_are_left_out() -> None:
    mixed = {"owner": "o", "extra": [1], "eth": "0x1", "name": "a.b", "simplexChannel": ["ä"]}
    found = json.loads(name_record(json.dumps(mixed).encode()))
    assert list(found) == list(json.loads(VECTOR))
    assert (found["owner"], found["eth"], found["btc"], found["nickname"]) == ("o", "0x1", None, "")
    assert found["simplexChannel"] == ["ä"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"name":1}',
        b'{"name":null}',
        b'{"eth":1}',
        b'{"simplexContact":"x"}',
        b'{"simplexContact":[1]}',
        b'{"name":"\\ud800"}',
        b"\xff",
        b"[" * 16_000,
    ],
)
def test_other_records_are_refused(text: bytes) -> None:
    with pytest.raises(DecodeError):
        name_record(text)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text(), st.lists).map(lambda x: json.dumps({"name": x}).encode())
)
def test_any_record_is_taken_or_refused(text: bytes) -> None:
    try:
        record = name_record(text)
    except DecodeError:
        return
    assert name_record(record) == record
