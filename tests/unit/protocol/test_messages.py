from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import MESSAGES_WITH_BODY, messages, says_it
from tocsin.errors import DecodeError
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.error_codes import CommandFault
from tocsin.protocol.messages import (
    Command,
    EntityRule,
    Message,
    MessageTable,
    MessageWithBody,
    Needs,
    Response,
    UnknownTag,
)
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.smp.dialect import SMP
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

Table = MessageTable[Command] | MessageTable[Response]
TABLES: list[tuple[Dialect, Table]] = [
    (dialect, table) for dialect in (SMP, NTF) for table in (dialect.commands, dialect.responses)
]


def _versions(dialect: Dialect) -> range:
    return range(dialect.supported.lowest, dialect.supported.highest + 1)


ROUND_TRIPS = [
    pytest.param(table, kind, version, id=f"{dialect.name}-v{version}-{kind.tag.decode()}")
    for dialect, table in TABLES
    for version in _versions(dialect)
    for kind in table.kinds
    if says_it(kind, version)
]
SECRET_FIELDS = frozenset(
    {
        "raw",
        "password",
        "token",
        "code",
        "body",
        "notifier_id",
        "transmission",
        "envelope",
        "sealed",
        "private_key",
    }
)


def test_every_message_with_parameters_has_a_strategy() -> None:
    kinds = {kind for _, table in TABLES for kind in table.kinds if kind.has_body}
    assert kinds == set(MESSAGES_WITH_BODY)


@pytest.mark.parametrize(("table", "kind", "version"), ROUND_TRIPS)
@settings(max_examples=12)
@given(data=st.data())
def test_every_message_is_read_back_in_every_version(
    table: Table, kind: type[Message], version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(kind, version))
    wire = message.encode(version)
    assert wire.partition(b" ")[0] == kind.tag
    assert table.decode(wire, version) == message


@pytest.mark.parametrize(
    ("dialect", "table"), [pytest.param(d, t, id=f"{d.name}-{i % 2}") for i, (d, t) in enumerate(TABLES)]
)
@settings(max_examples=150)
@given(data=st.data())
def test_any_bytes_after_a_known_tag_decode_or_are_refused(
    dialect: Dialect, table: Table, data: st.DataObject
) -> None:
    tag = data.draw(st.sampled_from([kind.tag for kind in table.kinds]))
    version = data.draw(st.sampled_from(_versions(dialect)))
    wire = tag + b" " + data.draw(st.binary(max_size=80))
    try:
        message = table.decode(wire, version)
    except DecodeError:
        return
    assert message.tag == tag


@pytest.mark.parametrize(
    ("dialect", "table", "kind"),
    [pytest.param(d, t, kind, id=f"{d.name}-{kind.tag.decode()}") for d, t in TABLES for kind in t.kinds],
)
def test_parameters_follow_one_space_and_leave_nothing_over(
    dialect: Dialect, table: Table, kind: type[Message]
) -> None:
    version = dialect.supported.highest
    with pytest.raises(UnknownTag):
        table.decode(kind.tag + b"=", version)
    if kind.has_body:
        with pytest.raises(DecodeError, match="wrong parameters"):
            table.decode(kind.tag, version)
        return
    for wrong in (b" ", b" x"):
        with pytest.raises(DecodeError, match="parameters"):
            table.decode(kind.tag + wrong, version)


@pytest.mark.parametrize(("dialect", "table"), TABLES)
@given(st.binary(max_size=20))
def test_any_bytes_decode_or_are_refused(dialect: Dialect, table: Table, wire: bytes) -> None:
    try:
        table.decode(wire, dialect.supported.highest)
    except DecodeError:
        return


def test_a_response_is_not_a_command() -> None:
    with pytest.raises(UnknownTag):
        SMP.commands.decode(b"OK", 18)
    with pytest.raises(UnknownTag):
        NTF.responses.decode(b"TCHK", 3)


def test_an_unknown_tag_is_shown_in_part() -> None:
    with pytest.raises(UnknownTag, match=r"unknown tag b'AAAAAAAAAAAAAAAA'$"):
        SMP.commands.decode(b"A" * 10000, 18)


def test_messages_without_parameters_are_made_once() -> None:
    assert SMP.commands.decode(b"SUB", 18) is SMP.commands.decode(b"SUB", 6)


def test_a_table_refuses_two_messages_of_one_tag() -> None:
    kind = SMP.commands.kinds[0]
    with pytest.raises(TypeError, match="two messages"):
        MessageTable[Command](kind, kind)


def test_a_message_must_say_how_its_body_is_encoded() -> None:
    class Mute(MessageWithBody):
        tag: ClassVar[bytes] = b"MUTE"

    with pytest.raises(TypeError, match="Mute"):
        Mute().encode(18)
    assert isinstance(Mute.decode_body(WireReader(b""), 18), Mute)
    with pytest.raises(TypeError):
        Mute().encode_body(WireWriter(), 18)


@pytest.mark.parametrize(
    ("needs", "neither", "entity_only", "auth_only", "both"),
    [
        (Needs.AUTH, CommandFault.NO_AUTH, CommandFault.NO_AUTH, None, CommandFault.HAS_AUTH),
        (Needs.AUTH_AND_ENTITY, CommandFault.NO_AUTH, CommandFault.NO_AUTH, CommandFault.NO_AUTH, None),
        (Needs.ENTITY_MAYBE_AUTH, CommandFault.NO_ENTITY, None, CommandFault.NO_ENTITY, None),
        (Needs.ENTITY, CommandFault.NO_ENTITY, None, CommandFault.NO_ENTITY, CommandFault.HAS_AUTH),
        (Needs.NOTHING, None, CommandFault.HAS_AUTH, CommandFault.HAS_AUTH, CommandFault.HAS_AUTH),
    ],
)
def test_wrong_credentials_are_named(
    needs: Needs,
    neither: CommandFault | None,
    entity_only: CommandFault | None,
    auth_only: CommandFault | None,
    both: CommandFault | None,
) -> None:
    assert needs.fault(auth=False, entity=False) is neither
    assert needs.fault(auth=False, entity=True) is entity_only
    assert needs.fault(auth=True, entity=False) is auth_only
    assert needs.fault(auth=True, entity=True) is both


SMP_NEEDS = {
    Needs.AUTH: "NEW",
    Needs.AUTH_AND_ENTITY: "SUB KEY RKEY LSET LDEL NKEY NDEL GET ACK OFF DEL QUE SKEY LKEY NSUB SUBS NSUBS",
    Needs.ENTITY_MAYBE_AUTH: "SEND",
    Needs.ENTITY: "LGET PFWD",
    Needs.NOTHING: "PING PRXY RFWD RSLV",
}
NTF_NEEDS = {
    Needs.AUTH: "TNEW SNEW",
    Needs.AUTH_AND_ENTITY: "TVFY TCHK TRPL TDEL TCRN SCHK SDEL",
    Needs.NOTHING: "PING",
}


@pytest.mark.parametrize(("dialect", "matrix"), [(SMP, SMP_NEEDS), (NTF, NTF_NEEDS)])
def test_commands_need_the_credentials_of_the_matrix(dialect: Dialect, matrix: dict[Needs, str]) -> None:
    """smp.md 6.2, ntf.md 1.7."""
    expected = {tag: needs for needs, tags in matrix.items() for tag in tags.split()}
    assert {kind.tag.decode(): kind.needs for kind in dialect.commands.kinds} == expected


@pytest.mark.parametrize(
    ("dialect", "empty"),
    [(SMP, {"IDS", "PONG", "PKEY", "RRES", "ALLS", "RNAME"}), (NTF, {"IDTKN", "IDSUB", "PONG"})],
)
def test_responses_name_an_entity_where_the_protocol_says_so(dialect: Dialect, empty: set[str]) -> None:
    """smp.md 6.4, ntf.md 1.7."""
    for kind in dialect.responses.kinds:
        tag = kind.tag.decode()
        rule = EntityRule.EMPTY if tag in empty else EntityRule.ANY if tag == "ERR" else EntityRule.PRESENT
        assert kind.entity is rule


def test_entity_rules_name_their_faults() -> None:
    assert EntityRule.EMPTY.fault(entity=False) is None
    assert EntityRule.EMPTY.fault(entity=True) is CommandFault.HAS_AUTH
    assert EntityRule.PRESENT.fault(entity=True) is None
    assert EntityRule.PRESENT.fault(entity=False) is CommandFault.NO_ENTITY
    assert EntityRule.ANY.fault(entity=True) is None
    assert EntityRule.ANY.fault(entity=False) is None


def _secrets(value: object) -> list[bytes]:
    """All secret byte strings anywhere inside a message. Public keys are not secret, their `raw` may be shown."""
    if not is_dataclass(value) or isinstance(value, type) or type(value).__name__.endswith("PublicKey"):
        return []
    found: list[bytes] = []
    for item in fields(value):
        content = getattr(value, item.name)
        if item.name in SECRET_FIELDS and isinstance(content, bytes):
            found.append(content)
        else:
            found.extend(_secrets(content))
    return found


def shows(text: str, secret: bytes) -> bool:
    return len(secret) >= 8 and (repr(secret)[2:-1] in text or secret.hex() in text)


@pytest.mark.parametrize("kind", list(MESSAGES_WITH_BODY))
@settings(max_examples=10)
@given(data=st.data())
def test_no_message_shows_its_secrets(kind: type[Message], data: st.DataObject) -> None:
    """Passwords, device tokens, codes, message bodies, notifier ids and private keys."""
    message = data.draw(messages(kind, 18))
    for secret in _secrets(message):
        assert not shows(repr(message), secret)
        assert not shows(str(message), secret)
