"""Both routers' readers of store logs, for `tocsin pipeline compact` to use on parts of a log."""

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
# As in `pipeline.log_compaction`, which only exists where Spark is installed.
_BROKEN: Final = -1
_SKIPPED: Final = -2


def compacted_ntf(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    tables = NtfTables()
    restorer = NtfRestorer(tables)
    skipped = 0
    for line in lines:
        try:
            skipped += not restorer.store_change(decode_ntf_store_line(line))
        except BadLogLine as error:
            yield _BROKEN, error.reason.encode()
    if skipped:
        yield _SKIPPED, b"%d" % skipped
    for line in compact_ntf_lines(tables):
        yield _NTF_TAGS.index(line.partition(b" ")[0]), line


def compacted_smp(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    store = SmpMemoryStore()
    skipped = 0
    for line in lines:
        try:
            skipped += not store.restore(decode_store_log_line(line))
        except BadLogLine as error:
            yield _BROKEN, error.reason.encode()
    if skipped:
        yield _SKIPPED, b"%d" % skipped
    for line in compact_smp_lines(store):
        yield _SMP_TAGS.index(line.partition(b" ")[0]), line
