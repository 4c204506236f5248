"""Runs both routers' own store log readers on some lines of a log, and yields compact lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tocsin.durable.log_fields import BadLogLine
from tocsin.ntf_router.store.logs.log_reading import NtfRestorer
from tocsin.ntf_router.store.logs.snapshots import compact_lines as compact_ntf_lines
from tocsin.ntf_router.store.logs.store_log import (
    ServiceSet,
    SubscriptionAdded,
    TokenAdded,
    decode_ntf_store_line,
)
from tocsin.ntf_router.store.memory.tables import NtfTables
from tocsin.smp_router.store.logs.store_files import compact_lines as compact_smp_lines
from tocsin.smp_router.store.logs.store_log import AddServiceLine, CreateQueueLine, decode_store_log_line
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

NTF_SECTIONS: Final = ("tokens", "subscriptions", "services")
SMP_SECTIONS: Final = ("services", "queues")
_NTF_TAGS: Final = (TokenAdded.tag, SubscriptionAdded.tag, ServiceSet.tag)
_SMP_TAGS: Final = (AddServiceLine.tag, CreateQueueLine.tag)
BROKEN: Final = -1
"""In place of a section number: the line is the reason why a line cannot be read."""
SKIPPED: Final = -2
"""In place of a section number: the line is the number of lines about things that do not exist, in decimal."""


def compact_ntf(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    tables = NtfTables()
    restorer = NtfRestorer(tables)
    skipped = 0
    for line in lines:
        try:
            skipped += not restorer.store_change(decode_ntf_store_line(line))
        except BadLogLine as error:
            yield BROKEN, error.reason.encode()
    if skipped:
        yield SKIPPED, b"%d" % skipped
    for line in compact_ntf_lines(tables):
        yield _NTF_TAGS.index(line.partition(b" ")[0]), line


def compact_smp(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    store = SmpMemoryStore()
    skipped = 0
    for line in lines:
        try:
            skipped += not store.restore(decode_store_log_line(line))
        except BadLogLine as error:
            yield BROKEN, error.reason.encode()
    if skipped:
        yield SKIPPED, b"%d" % skipped
    for line in compact_smp_lines(store):
        yield _SMP_TAGS.index(line.partition(b" ")[0]), line
