"""Examines stores: the folder or database, its tables, and the SMP routers that an NTF router uses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tocsin.clients import ClientSettings, SmpClient
from tocsin.doctor.findings import DoctorSettings, Finding, bad, ok, skipped, warn
from tocsin.durable.postgres.connecting import tls_options
from tocsin.errors import PeerIdentityMismatch, StoreError, TocsinError
from tocsin.ntf_router.opened_store import EMBEDDED_FOLDER
from tocsin.ntf_router.running_router import client_settings
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.logs.log_reading import STORE_LOG, NtfLogReader, NtfStartReport
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.ntf_router.store.records import USED_ADDRESSES
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.smp_router.settings.settings import SmpSettings

if TYPE_CHECKING:
    from asyncpg import Connection, Record

FLEET: Final = "instances of the fleet"
MOST_NAMED: Final = 10
STORE: Final = "store"
DATABASE: Final = "database"
ROUTERS: Final = "SMP routers"
MOST_LOG_BYTES: Final = 64 << 20
"""Larger store logs are not read just to find SMP routers."""
_POSTMASTER: Final = "postmaster.pid"
_SOCKET_LINE: Final = 4

_FLEET: Final = """
    WITH alive AS (SELECT number, name FROM "{schema}".fleet_instances WHERE expires_at > clock_timestamp())
    SELECT coalesce((SELECT array_agg(name ORDER BY number) FROM alive), '{{}}') AS names,
        (SELECT count(*) FROM "{schema}".fleet_leases l
            WHERE l.holder IS NULL OR NOT EXISTS (SELECT FROM alive WHERE number = l.holder)) AS free
"""
_USED: Final = """
    SELECT r.smp_host, r.smp_port, r.smp_keyhash FROM "{schema}".smp_servers r
    JOIN "{schema}".subscriptions s USING (smp_server_id) GROUP BY r.smp_server_id ORDER BY count(*) DESC
"""


async def smp_store_findings(settings: SmpSettings, doctor: DoctorSettings) -> list[Finding]:
    if settings.database_url is None:
        return list(_folder_findings(settings.store))
    try:
        async with _connected(settings.database_url, doctor.timeout) as connection:
            from tocsin.smp_router.store.postgres.schema_migrations import has_current_schema  # needs asyncpg

            if await has_current_schema(connection):
                return [ok(DATABASE, "it answers, and its tables are up to date")]
            return [
                warn(DATABASE, "it answers, but has no tables yet", "start the router, which creates them")
            ]
    except StoreError as error:
        return [_database_finding(error, "smp")]


async def ntf_store_findings(settings: NtfSettings, doctor: DoctorSettings) -> list[Finding]:
    """Findings about the store and the SMP routers in it."""
    if settings.store_kind is StoreKind.MEMORY:
        folder = settings.store if settings.store_log else None
        findings = list(_folder_findings(folder))
        if folder is None or findings[0].status != "ok":
            return findings
        return findings + await _routers_of_log(folder / STORE_LOG, settings, doctor)
    url = settings.database_url
    if settings.store_kind is StoreKind.EMBEDDED:
        url = None if settings.store is None else embedded_url(settings.store / EMBEDDED_FOLDER)
        if url is None:
            step = "start the router, which starts its database"
            return [bad(DATABASE, "the embedded PostgreSQL is not running", step)]
    assert url is not None
    try:
        async with _connected(url, doctor.timeout) as connection:
            findings = [await _ntf_schema_finding(connection, settings.database_schema)]
            if findings[0].status == "ok":
                rows = await connection.fetch(_USED.format(schema=settings.database_schema))
                from tocsin.ntf_router.store.postgres.rows import router_of_row  # needs asyncpg

                used = [router_of_row(row) for row in rows]
                findings.append(await router_finding(used, settings, doctor))
                if settings.fleet:
                    findings.append(await _fleet_finding(connection, settings))
            return findings
    except StoreError as error:
        return [_database_finding(error, "ntf")]


def _folder_findings(folder: Path | None) -> Iterator[Finding]:
    if folder is None:
        step = "set [STORE_LOG] enable to on to keep it"
        yield warn(STORE, "it is in memory only: a restart loses everything", step)
    elif not folder.is_dir():
        yield bad(
            STORE, f"{folder} does not exist", f"create it as the router's user: `mkdir -m 700 {folder}`"
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield bad(
            STORE,
            f"this user cannot write to {folder}",
            "run doctor as the router's user, or chown the folder",
        )
    elif (mode := folder.stat().st_mode & 0o777) & 0o007:
        step = f"chmod 700 {folder}"
        yield warn(STORE, f"every user of this machine can open {folder} ({mode:03o})", step)
    else:
        yield ok(STORE, f"{folder} is readable and writable")


def embedded_url(folder: Path) -> str | None:
    """URL of the PostgreSQL that a router runs in the folder; None if it is not running."""
    try:
        lines = (folder / _POSTMASTER).read_text().splitlines()
    except OSError:
        return None
    socket_folder = lines[_SOCKET_LINE].strip() if len(lines) > _SOCKET_LINE else ""
    return f"postgresql://postgres:@/postgres?host={socket_folder}" if socket_folder else None


@asynccontextmanager
async def _connected(url: str, timeout: float) -> AsyncIterator[Connection[Record]]:
    """Raises StoreError."""
    try:
        import asyncpg

        from tocsin.durable.postgres.database_errors import translated
    except ImportError as error:
        raise StoreError("PostgreSQL needs another package: pip install 'tocsin[postgres]'") from error
    with translated():
        connection: Connection[Record] = await asyncpg.connect(
            url, timeout=timeout, command_timeout=timeout, **tls_options(url)
        )
        try:
            yield connection
        finally:
            connection.terminate()


def _database_finding(error: StoreError, kind: str) -> Finding:
    text = str(error)
    if "newer" in text:
        return bad(DATABASE, text, "run the newer version of Tocsin again")
    if "lacks" in text:
        return warn(
            DATABASE,
            text,
            f"run `tocsin {kind} start --maintenance`, or start the router: both update the tables",
        )
    return bad(DATABASE, text, "check that it is running, and its address, user and password in the settings")


async def _ntf_schema_finding(connection: Connection[Record], schema: str) -> Finding:
    from tocsin.ntf_router.store.postgres.schema import has_store  # needs asyncpg

    if await has_store(connection, schema):
        return ok(DATABASE, f"it answers, and the tables of {schema} are up to date")
    existing = await connection.fetchval("SELECT to_regclass($1)", f'"{schema}".migrations')
    step = "run `tocsin ntf start --maintenance`, or start the router: both update the tables"
    if existing is None:
        return warn(DATABASE, f"it answers, but has no tables in {schema} yet", step)
    return warn(DATABASE, f"it answers, but the tables of {schema} are older than this version", step)


async def _fleet_finding(connection: Connection[Record], settings: NtfSettings) -> Finding:
    """Say which instances are alive, and whether their leases cover everything."""
    from tocsin.ntf_router.store.postgres.schema import own_schema  # needs asyncpg

    row = await connection.fetchrow(_FLEET.format(schema=own_schema(settings.database_schema)))
    assert row is not None
    if not row["names"]:
        return warn(FLEET, "no instance is running", "start one: `tocsin ntf start`")
    alive = f"{len(row['names'])} running: {'; '.join(row['names'][:MOST_NAMED])}"
    if row["free"]:
        step = "look again in some seconds; then at the instances' logs and their /health/ready"
        return warn(FLEET, f"{row['free']} leases have no living holder ({alive})", step)
    return ok(FLEET, f"{alive}; all leases have a holder")


async def _routers_of_log(log: Path, settings: NtfSettings, doctor: DoctorSettings) -> list[Finding]:
    try:
        store = await asyncio.to_thread(_read_log, log)
    except StoreError as error:
        return [bad(STORE, str(error), "restore the file from a backup")]
    if store is None:
        text = "the store log is too large to read for this; see the router's metrics"
        return [skipped(ROUTERS, text)]
    used = await store.used_routers()
    used.sort(key=lambda each: -(each.associated_count + each.individual_count))
    addresses = [location for each in used for location in (each.location, *each.other_addresses)]
    return [await router_finding(addresses, settings, doctor)]


def _read_log(log: Path) -> NtfMemoryStore | None:
    """Read the log while the router may be writing it: the last line may be torn. None if it is too large."""
    store = NtfMemoryStore()
    if log.exists():
        if log.stat().st_size > MOST_LOG_BYTES:
            return None
        reader = NtfLogReader(store.tables, NtfStartReport(), skip_broken=True, keep_broken=False)
        reader.read_store_log(log)
    return store


async def router_finding(
    addresses: list[RouterLocation], settings: NtfSettings, doctor: DoctorSettings
) -> Finding:
    """Connect, as the NTF router does, to the SMP routers with the most subscriptions, at any of their addresses."""
    if not addresses:
        return skipped(ROUTERS, "no device uses one yet")
    routers: dict[bytes, list[RouterLocation]] = {}
    for each in addresses:
        routers.setdefault(each.key_hash, []).append(each)
    used = list(routers.values())
    tried = used[: doctor.most_routers]
    clients = client_settings(settings)
    dial = replace(clients.dial, connect_timeout=doctor.timeout)
    limited = replace(clients, dial=dial, response_timeout=doctor.timeout)
    problems = await asyncio.gather(*(_problem_of(each, limited) for each in tried))
    failed = [f"{each[0].hosts[0]} ({why})" for each, why in zip(tried, problems, strict=True) if why]
    scope = f"{len(tried)} of {len(used)}" if len(used) > len(tried) else f"{len(used)}"
    if not failed:
        return ok(ROUTERS, f"{scope} in use, reached and verified")
    text = f"{len(failed)} of {len(tried)} tried cannot be reached: {'; '.join(failed[:5])}"
    step = (
        "check the network, DNS and the SOCKS proxy of this machine; if a router is down, tell its operator"
    )
    return bad(ROUTERS, text, step) if len(failed) == len(tried) else warn(ROUTERS, text, step)


async def _problem_of(addresses: list[RouterLocation], settings: ClientSettings) -> str:
    """Why the router cannot be used, at its first address; empty if it can at one of them."""
    problems = await asyncio.gather(*(_problem_at(each, settings) for each in addresses[:USED_ADDRESSES]))
    return problems[0] if all(problems) else ""


async def _problem_at(location: RouterLocation, settings: ClientSettings) -> str:
    try:
        async with SmpClient.connect(RouterAddress(Scheme.SMP, location, None), settings) as client:
            await client.ping()
    except PeerIdentityMismatch:
        return "another router answers at this address"
    except TocsinError as error:
        return str(error)[:120]
    return ""
