"""Direct notifications of an SMP store as rows of PostgreSQL, and their changes that wait for a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from asyncpg import Record

from tocsin.errors import DecodeError, StoreError
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.smp_router.store.interface import NtfRouterRecord, SmpDirectStore, WaitingPacket
from tocsin.smp_router.store.postgres.database_session import DatabaseSession
from tocsin.smp_router.store.postgres.rows import Row

_SELECT_NTF_ROUTERS: Final = "SELECT service_id, location, auth_key, issued_at FROM tocsin_smp.ntf_routers"
_UPSERT_NTF_ROUTERS: Final = """
    INSERT INTO tocsin_smp.ntf_routers (service_id, location, auth_key, issued_at)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[])
    ON CONFLICT (service_id) DO UPDATE SET
        location = excluded.location, auth_key = excluded.auth_key, issued_at = excluded.issued_at
"""
_SELECT_MINIMUMS: Final = "SELECT notifier_id, minimum FROM tocsin_smp.minimum_priorities"
_UPSERT_MINIMUMS: Final = """
    INSERT INTO tocsin_smp.minimum_priorities (notifier_id, minimum)
    SELECT * FROM unnest($1::bytea[], $2::smallint[])
    ON CONFLICT (notifier_id) DO UPDATE SET minimum = excluded.minimum
"""
_DELETE_MINIMUMS: Final = """
    DELETE FROM tocsin_smp.minimum_priorities AS m USING unnest($1::bytea[]) AS gone(id) WHERE m.notifier_id = gone.id
"""
_SELECT_PACKETS: Final = """
    SELECT packet_id, created_at, location, notifier_id, packet FROM tocsin_smp.packets ORDER BY created_at
"""
_INSERT_PACKETS: Final = """
    INSERT INTO tocsin_smp.packets (packet_id, created_at, location, notifier_id, packet)
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[])
    ON CONFLICT (packet_id) DO NOTHING
"""
_DELETE_PACKETS: Final = """
    DELETE FROM tocsin_smp.packets AS p USING unnest($1::bytea[]) AS gone(id) WHERE p.packet_id = gone.id
"""
_ROWS: Final = 2000


class PendingDirectChanges:
    """Changes made in memory since the last batch was taken: the last one of each object counts."""

    def __init__(self) -> None:
        self._routers: dict[bytes, NtfRouterRecord] = {}
        self._minimums: dict[bytes, MinimumPriority] = {}
        self._packets: dict[bytes, WaitingPacket] = {}
        self._removed: dict[bytes, None] = {}

    def router_set(self, change: Any) -> None:
        record: NtfRouterRecord = change.record
        self._routers[record.service_id] = record

    def minimum_set(self, change: Any) -> None:
        self._minimums[change.notifier_id] = change.minimum

    def packet_added(self, change: Any) -> None:
        packet: WaitingPacket = change.packet
        self._packets[packet.packet_id] = packet

    def packet_removed(self, change: Any) -> None:
        if self._packets.pop(change.packet_id, None) is None:
            self._removed[change.packet_id] = None

    def statements(self) -> list[tuple[str, Sequence[Row]]]:
        """Return statements with their rows."""
        kept = [each for each in self._minimums.items() if each[1] is not MinimumPriority.ALL]
        dropped = [
            (notifier_id,) for notifier_id, value in self._minimums.items() if value is MinimumPriority.ALL
        ]
        return [
            (_UPSERT_NTF_ROUTERS, [_router_row(record) for record in self._routers.values()]),
            (_DELETE_MINIMUMS, dropped),
            (_UPSERT_MINIMUMS, [_minimum_row(*each) for each in kept]),
            (_DELETE_PACKETS, [(packet_id,) for packet_id in self._removed]),
            (_INSERT_PACKETS, [_packet_row(packet) for packet in self._packets.values()]),
        ]


def copied_rows(store: SmpDirectStore) -> Iterator[tuple[str, Iterator[Row]]]:
    """Return the statements that write all records, with their rows."""
    yield _UPSERT_NTF_ROUTERS, map(_router_row, store.ntf_routers())
    yield _UPSERT_MINIMUMS, (_minimum_row(*each) for each in store.minimum_priorities())
    yield _INSERT_PACKETS, map(_packet_row, store.packets())


async def read_direct_tables(
    session: DatabaseSession, store: SmpDirectStore, *, has_service: Callable[[bytes], bool]
) -> int:
    """Read the rows after services and queues were read. Returns how many rows belong to none of them."""
    skipped = 0
    async with session.pages(_SELECT_NTF_ROUTERS, _ROWS) as pages:
        async for page in pages:
            for row in page:
                if has_service(row["service_id"]):
                    store.set_ntf_router(_router_of_row(row))
                else:
                    skipped += 1
    async with session.pages(_SELECT_MINIMUMS, _ROWS) as pages:
        async for page in pages:
            for notifier_id, minimum in page:
                store.set_minimum_priority(notifier_id, MinimumPriority(minimum))
                skipped += store.minimum_priority(notifier_id) is MinimumPriority.ALL
    async with session.pages(_SELECT_PACKETS, _ROWS) as pages:
        async for page in pages:
            skipped += sum(not store.add_packet(_packet_of_row(row)) for row in page)
    return skipped


def _router_row(record: NtfRouterRecord) -> Row:
    return record.service_id, _location_text(record.location), record.auth_key, record.issued_at


def _router_of_row(row: Record) -> NtfRouterRecord:
    service_id, location, auth_key, issued_at = row
    return NtfRouterRecord(service_id, _location(location), auth_key, issued_at)


def _minimum_row(notifier_id: bytes, minimum: MinimumPriority) -> Row:
    return notifier_id, int(minimum)


def _packet_row(packet: WaitingPacket) -> Row:
    location = _location_text(packet.location)
    return packet.packet_id, packet.created_at, location, packet.notifier_id, packet.packet


def _packet_of_row(row: Record) -> WaitingPacket:
    packet_id, created_at, location, notifier_id, packet = row
    return WaitingPacket(packet_id, created_at, _location(location), notifier_id, packet)


def _location_text(location: RouterLocation) -> bytes:
    return location.text(Scheme.NTF).encode()


def _location(text: bytes) -> RouterLocation:
    try:
        return RouterAddress.of(text.decode(), Scheme.NTF).location
    except (DecodeError, UnicodeDecodeError) as error:
        raise StoreError("the database has an invalid address of an NTF router") from error
