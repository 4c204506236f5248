"""The tool understands every message in every version, also those that the recordings at hand do not show."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import messages, says_it
from tocsin.protocol.messages import Message
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.smp.dialect import SMP
from tools.wire_vectors.commands import CONVERSIONS, Opaque, check_command
from tools.wire_vectors.comparison import Mismatch
from tools.wire_vectors.files import BadVector, Fields, octets

CASES = [
    pytest.param(kind, version, id=f"{dialect.name}-v{version}-{kind.tag.decode()}")
    for dialect, versions in ((SMP, (6, 8, 9, 14, 15, 16, 17, 18)), (NTF, (1, 2, 3)))
    for table in (dialect.commands, dialect.responses)
    for kind in table.kinds
    for version in versions
    if says_it(kind, version)
]


def recorded_form(value: Any, *, by_digest: bool) -> Any:
    """A description as a recording writes it: hex, and long byte strings perhaps by digest."""
    match value:
        case bytes():
            return value.hex()
        case list():
            return [recorded_form(item, by_digest=by_digest) for item in value]
        case dict():
            written: dict[str, Any] = {}
            for name, item in value.items():
                if isinstance(item, Opaque) and by_digest:
                    written[f"{name}_len"] = len(item.content)
                    written[f"{name}_sha256"] = hashlib.sha256(item.content).hexdigest()
                elif isinstance(item, Opaque):
                    written[name] = [item.content.hex()]
                else:
                    written[name] = recorded_form(item, by_digest=by_digest)
            return written
        case _:
            return value


@pytest.mark.parametrize(("kind", "version"), CASES)
@settings(max_examples=6)
@given(data=st.data(), by_digest=st.booleans())
def test_every_message_is_described_and_built_again(
    kind: type[Message], version: int, data: st.DataObject, by_digest: bool
) -> None:
    message = data.draw(messages(kind, version))
    described = CONVERSIONS[kind].describe(message, version) if kind in CONVERSIONS else {}
    recorded = {"tag": kind.tag.decode(), **recorded_form(described, by_digest=by_digest)}
    built = check_command(message, version, Fields("test", recorded))
    assert built == message
    assert built.encode(version) == message.encode(version)


@pytest.mark.parametrize(("kind", "version"), [case for case in CASES if case.values[1] in (3, 18)])
@settings(max_examples=4)
@given(data=st.data())
def test_a_parameter_too_many_is_a_mismatch(kind: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(kind, version))
    described = CONVERSIONS[kind].describe(message, version) if kind in CONVERSIONS else {}
    recorded = {"tag": kind.tag.decode(), **recorded_form(described, by_digest=False), "more": "00"}
    with pytest.raises(Mismatch):
        check_command(message, version, Fields("test", recorded))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", b""),
        ("00ff", b"\x00\xff"),
        ([], b""),
        (["00", ["61", 3], "ff"], b"\x00aaa\xff"),
        ([["6162", 2]], b"abab"),
        ([["61", 0]], b""),
    ],
)
def test_byte_strings_may_come_in_parts(value: object, expected: bytes) -> None:
    assert octets(value, "test") == expected


@pytest.mark.parametrize("value", [None, 1, "0", "zz", [1], [["61", -1]], [["61", "2"]], [["61"]], {"61": 2}])
def test_other_values_are_no_byte_strings(value: object) -> None:
    with pytest.raises(BadVector, match="not a byte string"):
        octets(value, "test")
