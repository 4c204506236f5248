"""The store log's lines, both ways."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.unit.smp_router.store import samples
from tocsin.durable.log_fields import BadLogLine
from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.smp_router.store.logs import store_log_changes as lines
from tocsin.smp_router.store.logs.store_log import (
    AddServiceLine,
    CreateQueueLine,
    DeleteQueueLine,
    StoreLogRecord,
    decode_store_log_line,
)
from tocsin.smp_router.store.memory.queue_index import pack_queue, unpack_queue
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueRecord, QueueStatus, ServiceRecord

QUEUE: Final = QueueRecord(b"r" * 3, (b"k" * 3,), b"d" * 3, b"s" * 3)

# One table for both directions; the line is the reference's (smp.md 10.1).
LINES: Final[list[tuple[StoreLogRecord, bytes]]] = [
    (CreateQueueLine(QUEUE), b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk="),
    (
        CreateQueueLine(
            QueueRecord(
                b"\xfb\xff",
                (b"k" * 3, b"l"),
                b"d" * 3,
                b"s" * 3,
                b"K" * 3,
                QueueMode.CONTACT,
                QueueLink(b"lnk", LinkData(b"fix", b"usr")),
                NotifierRecord(b"ntf", b"key", b"sec", b"srv"),
                Blocked(BlockReason.SPAM, BlockNotice(86400)),
                1_750_000_000,
                b"rsv",
            )
        ),
        b"CREATE rid=-_8= rk=a2tr,bA== rdh=ZGRk sid=c3Nz sk=S0tL queue_mode=C link_id=bG5r queue_data=Zml4 dXNy"
        b' notifier=bnRm a2V5 c2Vj nsrv=c3J2 updated_at=1750000000 status=blocked,reason=spam,notice={"ttl":86400}'
        b" rsrv=cnN2",
    ),
    (
        CreateQueueLine(replace(QUEUE, mode=QueueMode.MESSAGING, status=QueueStatus.OFF)),
        b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk= queue_mode=M status=off",
    ),
    (lines.SecureQueueLine(b"rrr", b"key"), b"SECURE cnJy a2V5"),
    (lines.ChangeRecipientKeysLine(b"rrr", (b"key", b"l")), b"KEYS cnJy a2V5,bA=="),
    (lines.SetLinkLine(b"rrr", QueueLink(b"lnk", LinkData(b"fix", b"usr"))), b"LINK cnJy bG5r Zml4 dXNy"),
    (lines.DeleteLinkLine(b"rrr"), b"LDELETE cnJy"),
    (lines.SetNotifierLine(b"rrr", NotifierRecord(b"ntf", b"key", b"sec")), b"NOTIFIER cnJy bnRm a2V5 c2Vj"),
    (
        lines.SetNotifierLine(b"rrr", NotifierRecord(b"ntf", b"key", b"sec", b"srv")),
        b"NOTIFIER cnJy bnRm a2V5 c2Vj nsrv=c3J2",
    ),
    (lines.DeleteNotifierLine(b"rrr"), b"NDELETE cnJy"),
    (lines.SuspendQueueLine(b"rrr"), b"SUSPEND cnJy"),
    (lines.BlockQueueLine(b"rrr", Blocked(BlockReason.CONTENT)), b"BLOCK cnJy reason=content"),
    (
        lines.BlockQueueLine(b"rrr", Blocked(BlockReason.SPAM, BlockNotice(None))),
        b"BLOCK cnJy reason=spam,notice={}",
    ),
    (lines.UnblockQueueLine(b"rrr"), b"UNBLOCK cnJy"),
    (DeleteQueueLine(b"rrr"), b"DELETE cnJy"),
    (lines.SetTimeLine(b"rrr", 1_750_000_000), b"TIME cnJy 1750000000"),
    (
        AddServiceLine(ServiceRecord(b"srv", ServiceRole.NOTIFIER, (b"cer", b"c"), b"fpr", 17)),
        b"NEW_SERVICE service_id=c3J2 role=N cert=Y2Vy,Yw== cert_hash=ZnBy created_at=17",
    ),
    (
        AddServiceLine(ServiceRecord(b"srv", ServiceRole.MESSAGING, (b"cer",), b"fpr", 17)),
        b"NEW_SERVICE service_id=c3J2 role=M cert=Y2Vy cert_hash=ZnBy created_at=17",
    ),
    (lines.SetQueueServiceLine(b"rrr", ServiceRole.NOTIFIER, None), b"QUEUE_SERVICE cnJy N "),
    (lines.SetQueueServiceLine(b"rrr", ServiceRole.NOTIFIER, b"srv"), b"QUEUE_SERVICE cnJy N c3J2"),
    (lines.SetQueueServiceLine(b"rrr", ServiceRole.MESSAGING, None), b"QUEUE_SERVICE cnJy R "),
]


@pytest.mark.parametrize(("record", "line"), LINES)
def test_record_has_this_line(record: StoreLogRecord, line: bytes) -> None:
    assert record.encode() == line
    assert decode_store_log_line(line) == record


def test_the_old_word_for_the_queue_mode_is_read() -> None:
    line = b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk= sndSecure="
    assert decode_store_log_line(line + b"T") == CreateQueueLine(replace(QUEUE, mode=QueueMode.MESSAGING))
    assert decode_store_log_line(line + b"F") == CreateQueueLine(replace(QUEUE, mode=QueueMode.CONTACT))


def test_fields_without_padding_are_read() -> None:
    assert decode_store_log_line(b"DELETE -_8") == DeleteQueueLine(b"\xfb\xff")


RECORDS: Final[SearchStrategy[StoreLogRecord]] = st.one_of(
    st.builds(CreateQueueLine, samples.queues),
    st.builds(lines.SecureQueueLine, samples.ids, samples.keys),
    st.builds(lines.ChangeRecipientKeysLine, samples.ids, samples.key_lists),
    st.builds(lines.SetLinkLine, samples.ids, samples.links),
    st.builds(lines.SetNotifierLine, samples.ids, samples.notifiers),
    st.builds(lines.BlockQueueLine, samples.ids, samples.blocks),
    st.builds(lines.SetTimeLine, samples.ids, samples.times),
    st.builds(AddServiceLine, samples.services),
    st.builds(
        lines.SetQueueServiceLine,
        samples.ids,
        st.sampled_from([ServiceRole.MESSAGING, ServiceRole.NOTIFIER]),
        st.none() | samples.ids,
    ),
    *[
        st.builds(kind, samples.ids)
        for kind in (
            lines.DeleteLinkLine,
            lines.DeleteNotifierLine,
            lines.SuspendQueueLine,
            lines.UnblockQueueLine,
            DeleteQueueLine,
        )
    ],
)


@given(RECORDS)
def test_what_is_written_is_read_back(record: StoreLogRecord) -> None:
    line = record.encode()
    assert b"\n" not in line
    assert decode_store_log_line(line) == record


@given(samples.queues)
def test_a_packed_queue_is_unpacked_as_it_was(queue: QueueRecord) -> None:
    assert unpack_queue(queue.recipient_id, pack_queue(queue)) == queue


@given(st.binary(max_size=60) | st.sampled_from([line for _, line in LINES]).flatmap(
    lambda line: st.integers(0, len(line)).map(lambda cut: line[:cut])
))  # fmt: skip
def test_any_line_is_a_record_or_refused(line: bytes) -> None:
    with suppress(BadLogLine):
        decode_store_log_line(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"FORGET cnJy",
        b"DELETE",
        b"DELETE ",
        b"DELETE cnJy more",
        b"DELETE cn+y",
        b"DELETE cn/y",
        b"DELETE cnJ=y",
        b"DELETE cnJyA",
        b"TIME cnJy soon",
        b"TIME cnJy " + b"9" * 30,
        b"BLOCK cnJy reason=mood",
        b"BLOCK cnJy spam",
        b'BLOCK cnJy reason=spam,notice={"ttl":"long"}',
        b"BLOCK cnJy reason=spam,notice={",
        b"QUEUE_SERVICE cnJy X c3J2",
        b"NEW_SERVICE service_id=c3J2 role=X cert=Y2Vy cert_hash=ZnBy created_at=17",
        b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz",
        b"CREATE rid=cnJy rk= rdh=ZGRk sid=c3Nz sk=",
        b"CREATE rk=a2tr rid=cnJy rdh=ZGRk sid=c3Nz sk=",
        b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk= queue_mode=X",
        b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk= status=tired",
        b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk= link_id=bG5r",
        b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk= link_id=bG5r queue_data=Zml4",
        b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk= rsrv=cnN2 updated_at=17",
        b"CREATE rid=cnJy rk=a2tr rdh=ZGRk sid=c3Nz sk= colour=red",
    ],
)
def test_broken_line_is_refused(line: bytes) -> None:
    with pytest.raises(BadLogLine):
        decode_store_log_line(line)


@given(samples.queues, samples.queues)
def test_changes_lead_from_the_old_record_to_the_new(old: QueueRecord, new: QueueRecord) -> None:
    new = replace(
        new,
        recipient_id=old.recipient_id,
        sender_id=old.sender_id,
        dh_secret=old.dh_secret,
        mode=old.mode,
        sender_key=new.sender_key or old.sender_key,
        updated_at=old.updated_at if new.updated_at is None else new.updated_at,
    )
    changed = old
    for change in lines.queue_changes(old, new):
        changed = change.change(changed)
    assert changed == new


def test_moving_a_notifier_to_a_service_is_one_short_line() -> None:
    notifier = samples.a_notifier()
    old = replace(QUEUE, notifier=notifier)
    new = replace(QUEUE, notifier=replace(notifier, service_id=b"srv"))
    assert list(lines.queue_changes(old, new)) == [
        lines.SetQueueServiceLine(b"rrr", ServiceRole.NOTIFIER, b"srv")
    ]


@pytest.mark.parametrize(
    "new",
    [
        replace(QUEUE, sender_key=None),
        replace(QUEUE, sender_key=b"key", updated_at=None),
        replace(QUEUE, sender_key=b"key", updated_at=1, dh_secret=b"other"),
        replace(QUEUE, sender_key=b"key", updated_at=1, sender_id=b"other"),
    ],
)
def test_change_without_a_word_in_the_log_is_refused(new: QueueRecord) -> None:
    with pytest.raises(ValueError, match=r"never change|stays secured|forgotten"):
        list(lines.queue_changes(replace(QUEUE, sender_key=b"key", updated_at=1), new))
