"""Records of every shape for the tests of the memory store."""

from __future__ import annotations

import itertools
from hashlib import shake_128
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tocsin.protocol.addresses import RouterLocation
from tocsin.protocol.error_codes import Blocked, BlockNotice, BlockReason
from tocsin.protocol.sessions import ServiceRole
from tocsin.protocol.smp.queue_modes import LinkData, QueueMode
from tocsin.protocol.smp.sender_commands import HIGHEST_PRIORITY
from tocsin.smp_router.store import records
from tocsin.smp_router.store.interface import WaitingPacket

QUOTA: Final = 3
_COUNT: Final = itertools.count()


def some_bytes(length: int) -> bytes:
    """Different each time."""
    return shake_128(b"%d" % next(_COUNT)).digest(length)


def a_queue(mode: QueueMode | None = QueueMode.MESSAGING) -> records.QueueRecord:
    return records.QueueRecord(some_bytes(24), (some_bytes(44),), some_bytes(32), some_bytes(24), mode=mode)


def a_notifier(service_id: bytes | None = None) -> records.NotifierRecord:
    return records.NotifierRecord(some_bytes(24), some_bytes(44), some_bytes(32), service_id)


def a_link() -> records.QueueLink:
    return records.QueueLink(some_bytes(24), LinkData(some_bytes(100), some_bytes(200)))


def a_service(role: ServiceRole = ServiceRole.NOTIFIER) -> records.ServiceRecord:
    return records.ServiceRecord(
        some_bytes(24), role, (some_bytes(300), some_bytes(280)), some_bytes(32), 1_750_000_000
    )


def a_message(
    sent_at: int = 1_750_000_000, body: bytes = b"hello", *, priority: int = 1
) -> records.StoredMessage:
    return records.StoredMessage(some_bytes(24), sent_at, priority, body)


def a_notification(sent_at: int = 1_750_000_000) -> records.StoredNotification:
    return records.StoredNotification(some_bytes(24), sent_at, some_bytes(24), some_bytes(144))


ids: Final = st.binary(min_size=1, max_size=30)
keys: Final = st.binary(min_size=1, max_size=90)
datas: Final = st.binary(max_size=90)
times: Final = st.integers(0, 1 << 40)
key_lists: Final = st.lists(keys, min_size=1, max_size=3).map(tuple)
blocks: Final[SearchStrategy[Blocked]] = st.builds(
    Blocked,
    st.sampled_from(BlockReason),
    st.none() | st.builds(BlockNotice, st.none() | st.integers(-1, 1 << 40)),
)
links: Final = st.builds(records.QueueLink, ids, st.builds(LinkData, datas, datas))
notifiers: Final = st.builds(records.NotifierRecord, ids, keys, keys, st.none() | ids)
queues: Final[SearchStrategy[records.QueueRecord]] = st.builds(
    records.QueueRecord,
    recipient_id=ids,
    recipient_keys=key_lists,
    dh_secret=keys,
    sender_id=ids,
    sender_key=st.none() | keys,
    mode=st.none() | st.sampled_from(QueueMode),
    link=st.none() | links,
    notifier=st.none() | notifiers,
    status=st.sampled_from(records.QueueStatus) | blocks,
    updated_at=st.none() | times,
    service_id=st.none() | ids,
)
services: Final = st.builds(records.ServiceRecord, ids, st.sampled_from(ServiceRole), key_lists, ids, times)
messages: Final[SearchStrategy[records.StoredMessage]] = st.builds(
    records.StoredMessage, ids, times, st.integers(0, HIGHEST_PRIORITY), datas
) | st.builds(records.StoredMessage, ids, times, st.just(0), st.none())
notifications: Final = st.builds(records.StoredNotification, ids, times, ids, keys)


def a_location(host: str = "ntf.example", port: str = "") -> RouterLocation:
    return RouterLocation((host, "abc.onion"), port, some_bytes(32))


def a_packet(
    location: RouterLocation, notifier_id: bytes | None = None, created_at: int = 17
) -> WaitingPacket:
    return WaitingPacket(some_bytes(24), created_at, location, notifier_id, some_bytes(448))
