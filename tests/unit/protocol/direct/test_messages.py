"""Every message that direct notifications add, and that nothing else changes."""

from __future__ import annotations

import pytest

from fuzz import samples
from tocsin.errors import DecodeError, LocalProtocolError
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.direct.dialects import DIRECT_NTF, DIRECT_SMP, is_direct, offered_alpn, spoken
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.direct.queue_ids import ids_for
from tocsin.protocol.direct.smp_commands import DeleteQueueProven, SubscribeNotificationsAs
from tocsin.protocol.messages import Command, Message, Response, UnknownTag
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.smp.dialect import SMP
from tocsin.protocol.smp.recipient_commands import DeleteQueue
from tocsin.protocol.smp.sender_commands import MessageFlags, SendMessage
from tocsin.wire.reader import WireReader
from tocsin.wire.versions import VersionRange
from tocsin.wire.writer import WireWriter

PAIRS = [(SMP, DIRECT_SMP), (NTF, DIRECT_NTF)]


@pytest.mark.parametrize("message", [*samples.DIRECT_SMP_COMMANDS, *samples.DIRECT_NTF_COMMANDS])
def test_commands_are_read_back(message: Command) -> None:
    dialect = DIRECT_SMP if message in samples.DIRECT_SMP_COMMANDS else DIRECT_NTF
    version = dialect.supported.highest
    assert dialect.commands.decode(message.encode(version), version) == message


@pytest.mark.parametrize("message", [*samples.DIRECT_SMP_RESPONSES, *samples.DIRECT_NTF_RESPONSES])
def test_responses_are_read_back(message: Response) -> None:
    dialect = DIRECT_SMP if message in samples.DIRECT_SMP_RESPONSES else DIRECT_NTF
    version = dialect.supported.highest
    assert dialect.responses.decode(message.encode(version), version) == message


@pytest.mark.parametrize(("plain", "direct"), PAIRS)
def test_what_plain_sessions_say_is_said_in_direct_ones_in_the_same_bytes(
    plain: Dialect, direct: Dialect
) -> None:
    commands, responses = samples.MESSAGES[plain.alpn]
    version = plain.supported.highest
    both: list[tuple[Message, Message]] = [
        (
            plain.commands.decode(each.encode(version), version),
            direct.commands.decode(each.encode(version), version),
        )
        for each in commands
    ]
    both += [
        (
            plain.responses.decode(each.encode(version), version),
            direct.responses.decode(each.encode(version), version),
        )
        for each in responses
    ]
    for in_plain, in_direct in both:
        assert isinstance(in_direct, type(in_plain))
        assert in_direct.encode(version) == in_plain.encode(version)


@pytest.mark.parametrize("tag", [b"NSRV", b"NSSUB", b"NSKEY", b"NPKT", b"NPRI"])
def test_plain_sessions_do_not_know_the_new_commands(tag: bytes) -> None:
    with pytest.raises(UnknownTag):
        SMP.commands.decode(tag + b" 1", 18)
    with pytest.raises(UnknownTag):
        NTF.commands.decode(b"SFWD " + bytes(448), 3)


def test_plain_sessions_refuse_the_new_ends() -> None:
    for message in (SubscribeNotificationsAs(b"i" * 24), DeleteQueueProven(samples.PACKET)):
        with pytest.raises(DecodeError):
            SMP.commands.decode(message.encode(18), 18)


def test_without_a_packet_a_deletion_is_the_old_one() -> None:
    assert DeleteQueueProven().encode(18) == DeleteQueue().encode(18)


def test_a_packet_of_another_size_is_refused() -> None:
    for tag in (b"DEL ", b"NDEL ", b"NPKT 1"):
        with pytest.raises(DecodeError):
            DIRECT_SMP.commands.decode(tag + samples.PACKET[:-1], 18)


def test_two_ways_to_notify_in_one_command_are_refused() -> None:
    [with_keys] = [
        each for each in samples.SMP_COMMANDS if getattr(each, "notifier", None) and each.tag == b"NEW"
    ]
    [with_packet] = [each for each in samples.DIRECT_SMP_COMMANDS if getattr(each, "direct", None)]
    out = WireWriter()
    with_packet.direct.encode(out)  # type: ignore[attr-defined]
    with pytest.raises(DecodeError, match="two ways"):
        DIRECT_SMP.commands.decode(with_keys.encode(18) + out.done(), 18)


def test_ids_are_halves_of_a_hash() -> None:
    ids = ids_for(b"c" * 24)
    assert (len(ids.sender_id), len(ids.notifier_id)) == (24, 24)
    assert ids.sender_id != ids.notifier_id
    assert ids != ids_for(b"d" * 24)


@pytest.mark.parametrize(("plain", "direct"), PAIRS)
def test_alpn_decides(plain: Dialect, direct: Dialect) -> None:
    assert offered_alpn(plain) == (direct.alpn, plain.alpn)
    assert spoken(plain, direct.alpn) is direct
    for alpn in (plain.alpn, "h2", None):
        assert spoken(plain, alpn) is plain
    assert is_direct(direct)
    assert not is_direct(plain)


def test_versions_that_are_too_old_are_not_offered_it() -> None:
    assert offered_alpn(SMP, VersionRange(6, 15)) == ("smp/1",)
    assert offered_alpn(SMP, VersionRange(6, 16)) == ("smp+direct/1", "smp/1")
    assert DIRECT_SMP.offered("smp+direct/1", VersionRange(6, 19)) == VersionRange(16, 19)
    assert offered_alpn(NTF, VersionRange(1, 1)) == ("ntf/1",)


@pytest.mark.parametrize(
    ("wire", "priority"),
    [
        (b"F", 0),
        (b"T", 1),
        (b"T2", 2),
        (b"T3", 3),
        (b"T0", 1),
        (b"T9", 1),
        (b"Tx", 1),
        (b"F3", 0),
        (b"T23", 2),
    ],
)
def test_priorities_of_flags(wire: bytes, priority: int) -> None:
    message = SMP.commands.decode(b"SEND " + wire + b" body", 18)
    assert isinstance(message, SendMessage)
    assert message.flags.priority == priority
    assert message.flags.notify is (wire[:1] == b"T")


@pytest.mark.parametrize("priority", range(4))
def test_flags_of_priorities_are_read_by_old_peers(priority: int) -> None:
    flags = MessageFlags.of_priority(priority)
    assert flags.priority == priority
    out = WireWriter()
    flags.encode(out)
    # An old peer takes the first byte and skips what follows, up to the space (smp.md 6.3).
    assert WireReader(out.done()).boolean() is (priority > 0)
    assert len(out.done()) <= 7


@pytest.mark.parametrize("priority", [-1, 4])
def test_other_priorities_are_refused(priority: int) -> None:
    with pytest.raises(LocalProtocolError):
        MessageFlags.of_priority(priority)


def test_which_messages_a_minimum_admits() -> None:
    admitted = {minimum: [p for p in range(4) if minimum.admits(p)] for minimum in MinimumPriority}
    assert admitted == {
        MinimumPriority.OFF: [],
        MinimumPriority.ALL: [1, 2, 3],
        MinimumPriority.PRIORITY: [2, 3],
        MinimumPriority.HIGH: [3],
    }
