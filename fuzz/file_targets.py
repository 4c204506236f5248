"""Files of routers and operators: stores, event segments, hand-overs, plans, settings.

Nobody sends these, but disks break, people edit, and other versions write. A file is read, or refused by an error that
names it; what was read can be written and read again.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Final

from fuzz.contract import attempt, choose, demand_equal
from tocsin.errors import ConfigError, DecodeError, StoreError, TocsinError
from tocsin.events.delivery_events import decode_event
from tocsin.events.repair_plans import read_plan
from tocsin.events.replay import read_request
from tocsin.ntf_router.delivery.handover_rows import read_row, read_rows
from tocsin.ntf_router.delivery.outcome_rows import encode_outcome_rows, read_outcome_row
from tocsin.ntf_router.settings.files import load_ntf_settings
from tocsin.ntf_router.store.logs import log_reading as ntf_logs
from tocsin.ntf_router.store.logs.snapshots import compact_lines as ntf_lines
from tocsin.ntf_router.store.logs.store_files import fill_ntf_folder, read_ntf_store
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.smp_router.settings.files import load_smp_settings
from tocsin.smp_router.store.logs import log_reading as smp_logs
from tocsin.smp_router.store.logs.direct_log import direct_lines
from tocsin.smp_router.store.logs.snapshots import SmpSnapshot
from tocsin.smp_router.store.logs.store_files import compact_lines as smp_lines
from tocsin.smp_router.store.logs.store_files import fill_folder, read_smp_store
from tocsin.smp_router.store.memory.memory_store import SmpMemoryStore

BETWEEN_FILES: Final = b"\n=\n"
SMP_LOGS: Final = (
    smp_logs.STORE_LOG,
    smp_logs.MESSAGE_LOG,
    smp_logs.NOTIFICATION_LOG,
    smp_logs.CHANGE_LOG,
    smp_logs.DIRECT_LOG,
)
NTF_LOGS: Final = (
    ntf_logs.STORE_LOG,
    ntf_logs.STATE,
    f"{ntf_logs.CHANGE_LOG}.1",
    ntf_logs.LAST_NOTIFICATIONS,
)


@cache
def _folder() -> Path:
    memory = Path("/dev/shm")  # noqa: S108 - faster than a disk, and only for this process
    folder = Path(tempfile.mkdtemp(prefix="tocsin-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _empty(name: str) -> Path:
    folder = _folder() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _written(names: tuple[str, ...], data: bytes) -> Path:
    folder = _empty("read")
    for name, content in zip(names, data.split(BETWEEN_FILES), strict=False):
        (folder / name).write_bytes(content)
    return folder


def _no_progress(_count: int) -> None:
    """Nobody watches."""


def smp_store(data: bytes) -> None:
    """The logs of an SMP router: store, messages, notifications, changes, direct notifications."""
    folder = _written(SMP_LOGS, data)
    found = attempt(lambda: read_smp_store(folder), StoreError)
    if found is not None:
        demand_smp_readable(found[0])


def demand_smp_readable(store: SmpMemoryStore) -> None:
    """What a router has accepted can be written to its logs and read at its next start."""
    copy = _empty("copy")
    fill_folder(copy, store, _no_progress)
    demand_equal(_whole(read_smp_store(copy)[0]), _whole(store), "a store is read back")


def _whole(store: SmpMemoryStore) -> list[list[bytes]]:
    snapshot = SmpSnapshot.of(store)
    return [
        sorted(lines)
        for lines in (
            smp_lines(store),
            snapshot.message_lines(),
            snapshot.notification_lines(),
            direct_lines(store.direct),
        )
    ]


def ntf_store(data: bytes) -> None:
    """The logs of an NTF router: store, state, changes, last notifications."""
    folder = _written(NTF_LOGS, data)
    found = attempt(lambda: read_ntf_store(folder), StoreError)
    if found is not None:
        demand_ntf_readable(found[0])


def demand_ntf_readable(store: NtfMemoryStore) -> None:
    """What a router has accepted can be written to its logs and read at its next start."""
    copy = _empty("copy")
    fill_ntf_folder(copy, store, _no_progress)
    again = read_ntf_store(copy)[0]
    demand_equal(sorted(ntf_lines(again.tables)), sorted(ntf_lines(store.tables)), "a store is read back")


def event_line(data: bytes) -> None:
    """A line of an event segment."""
    try:
        decode_event(data)
    except ValueError:
        return


def handed_line(data: bytes) -> None:
    """Rows of a hand-over, and an outcome row."""
    attempt(lambda: read_row(data), DecodeError)
    read_rows(data)
    outcome = attempt(lambda: read_outcome_row(data), DecodeError)
    if outcome is not None:
        again = read_outcome_row(encode_outcome_rows([outcome]).rstrip(b"\n"))
        demand_equal(again, outcome, "an outcome is read back")


def plan(data: bytes) -> None:
    """A repair plan, and a request to replay."""
    path = _empty("plan") / "plan.jsonl"
    path.write_bytes(data)
    attempt(lambda: read_plan(path), ConfigError)
    attempt(lambda: read_request(path), ConfigError)


def settings(data: bytes) -> None:
    """The settings of both routers, in INI and in TOML."""
    folder = _empty("settings")
    for name in ("server.ini", "server.toml"):
        path = folder / name
        path.write_bytes(data)
        for load in (load_smp_settings, load_ntf_settings):
            attempt(partial[object](load, path, {}), TocsinError)


STORES: Final[tuple[Callable[[bytes], None], ...]] = (smp_store, ntf_store)
LINES: Final[tuple[Callable[[bytes], None], ...]] = (event_line, handed_line, plan)


def store_logs(data: bytes) -> None:
    """All logs of a router's folder, SMP and NTF."""
    check, data = choose(data, STORES)
    check(data)


def exchanged_file(data: bytes) -> None:
    """Event segments, hand-overs, outcomes, repair plans and replay requests."""
    check, data = choose(data, LINES)
    check(data)
