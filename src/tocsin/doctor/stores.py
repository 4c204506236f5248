"""Stores of routers: the folder or the database, its tables, and the SMP routers that an NTF router depends on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tocsin.clients import ClientSettings, SmpClient
from tocsin.doctor.findings import Finding, Surroundings, bad, ok, skipped, warn
from tocsin.errors import PeerIdentityMismatch, StoreError, TocsinError
from tocsin.ntf_router.opened_store import EMBEDDED_FOLDER
from tocsin.ntf_router.running_router import client_settings
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.logs.log_reading import STORE_LOG, NtfLogReader, NtfStartReport
from tocsin.ntf_router.store.memory.memory_store import NtfMemoryStore
from tocsin.protocol.addresses import RouterAddress, RouterLocation, Scheme
from tocsin.smp_router.settings.settings import SmpSettings

if TYPE_CHECKING:
    from asyncpg import Connection, Record

STORE: Final = "store"
DATABASE: Final = "database"
ROUTERS: Final = "SMP routers"
MOST_LOG_BYTES: Final = 64 << 20
"""A larger store log is not read only to find SMP routers."""
_POSTMASTER: Final = "postmaster.pid"
_SOCKET_LINE: Final = 4

_USED: Final = """
    SELECT r.smp_host, r.smp_port, r.smp_keyhash FROM "{schema}".smp_servers r
    JOIN "{schema}".subscriptions s USING (smp_server_id) GROUP BY r.smp_server_id ORDER BY count(*) DESC
"""


async def smp_store_findings(settings: SmpSettings, around: Surroundings) -> list[Finding]:
    if settings.database_url is None:
        return list(_folder_findings(settings.store))
    try:
        async with _connected(settings.database_url, around.timeout) as connection:
            from tocsin.smp_router.store.postgres.schema_migrations import has_current_schema  # needs asyncpg

            if await has_current_schema(connection):
                return [ok(DATABASE, "it answers, and its tables are those of this version")]
            return [warn(DATABASE, "it answers, but has no tables yet", "start the router: it makes them")]
    except StoreError as error:
        return [_database_finding(error, "smp")]


async def ntf_store_findings(settings: NtfSettings, around: Surroundings) -> list[Finding]:
    """The store, and the SMP routers that it names."""
    if settings.store_kind is StoreKind.MEMORY:
        folder = settings.store if settings.store_log else None
        findings = list(_folder_findings(folder))
        if folder is None or findings[0].status != "ok":
            return findings
        return findings + await _routers_of_log(folder / STORE_LOG, settings, around)
    url = settings.database_url
    if settings.store_kind is StoreKind.EMBEDDED:
        url = None if settings.store is None else embedded_url(settings.store / EMBEDDED_FOLDER)
        if url is None:
            step = "start the router: it starts its database"
            return [bad(DATABASE, "the embedded PostgreSQL does not run", step)]
    assert url is not None
    try:
        async with _connected(url, around.timeout) as connection:
            findings = [await _ntf_schema_finding(connection, settings.database_schema)]
            if findings[0].status == "ok":
                rows = await connection.fetch(_USED.format(schema=settings.database_schema))
                from tocsin.ntf_router.store.postgres.rows import router_of_row  # needs asyncpg

                used = [router_of_row(row) for row in rows]
                findings.append(await router_finding(used, settings, around))
            return findings
    except StoreError as error:
        return [_database_finding(error, "ntf")]


def _folder_findings(folder: Path | None) -> Iterator[Finding]:
    if folder is None:
        step = "set [STORE_LOG] enable to on if it should not"
        yield warn(STORE, "it is in memory only: everything is forgotten at a restart", step)
    elif not folder.is_dir():
        yield bad(STORE, f"{folder} is not there", "make it for the router's user, with `mkdir -m 700`")
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield bad(
            STORE, f"{folder} cannot be written by this user", "run doctor as the router's user, or chown it"
        )
    elif (mode := folder.stat().st_mode & 0o777) & 0o007:
        step = f"chmod 700 {folder}"
        yield warn(STORE, f"every user of this machine may look into {folder} ({mode:03o})", step)
    else:
        yield ok(STORE, f"{folder} can be read and written")


def embedded_url(folder: Path) -> str | None:
    """Of the PostgreSQL that a router runs in the folder; None if it does not run."""
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
        connection: Connection[Record] = await asyncpg.connect(url, timeout=timeout, command_timeout=timeout)
        try:
            yield connection
        finally:
            connection.terminate()


def _database_finding(error: StoreError, kind: str) -> Finding:
    text = str(error)
    if "newer" in text:
        return bad(DATABASE, text, "run the newer version again")
    if "lacks" in text:
        return warn(
            DATABASE, text, f"`tocsin {kind} start --maintenance`, or start the router: it does the same"
        )
    return bad(DATABASE, text, "check that it runs, its address, user and password")


async def _ntf_schema_finding(connection: Connection[Record], schema: str) -> Finding:
    from tocsin.ntf_router.store.postgres.schema import has_store  # needs asyncpg

    if await has_store(connection, schema):
        return ok(DATABASE, f"it answers, and the tables of {schema} are those of this version")
    there = await connection.fetchval("SELECT to_regclass($1)", f'"{schema}".migrations')
    step = "`tocsin ntf start --maintenance`, or start the router: it does the same"
    if there is None:
        return warn(DATABASE, f"it answers, but has no tables in {schema} yet", step)
    return warn(DATABASE, f"it answers, but the tables of {schema} are older than this version", step)


async def _routers_of_log(log: Path, settings: NtfSettings, around: Surroundings) -> list[Finding]:
    try:
        store = await asyncio.to_thread(_read_log, log)
    except StoreError as error:
        return [bad(STORE, str(error), "restore the file from a copy")]
    if store is None:
        text = "the store log is too large to read it for this; metrics tell about each of them"
        return [skipped(ROUTERS, text)]
    used = await store.used_routers()
    used.sort(key=lambda each: -(each.associated_count + each.individual_count))
    return [await router_finding([each.location for each in used], settings, around)]


def _read_log(log: Path) -> NtfMemoryStore | None:
    """Beside a running router, which holds the lock: the last line may be torn. None if it is too large."""
    store = NtfMemoryStore()
    if log.exists():
        if log.stat().st_size > MOST_LOG_BYTES:
            return None
        reader = NtfLogReader(store.tables, NtfStartReport(), skip_broken=True, keep_broken=False)
        reader.read_store_log(log)
    return store


async def router_finding(used: list[RouterLocation], settings: NtfSettings, around: Surroundings) -> Finding:
    """Those with the most subscriptions, all at once, as the router itself reaches them."""
    if not used:
        return skipped(ROUTERS, "no device has named any yet")
    tried = used[: around.most_routers]
    clients = client_settings(settings)
    dial = replace(clients.dial, connect_timeout=around.timeout)
    how = replace(clients, dial=dial, response_timeout=around.timeout)
    problems = await asyncio.gather(*(_problem_of(each, how) for each in tried))
    failed = [f"{each.hosts[0]} ({why})" for each, why in zip(tried, problems, strict=True) if why]
    scope = f"{len(tried)} of {len(used)}" if len(used) > len(tried) else f"{len(used)}"
    if not failed:
        return ok(ROUTERS, f"{scope} in use, reached and verified")
    text = f"{len(failed)} of {len(tried)} tried cannot be reached: {'; '.join(failed[:5])}"
    step = (
        "check the network, DNS and the SOCKS proxy of this machine; a router that is down is its operator's"
    )
    return bad(ROUTERS, text, step) if len(failed) == len(tried) else warn(ROUTERS, text, step)


async def _problem_of(location: RouterLocation, how: ClientSettings) -> str:
    """Why it cannot be used; empty if it can."""
    try:
        async with SmpClient.connect(RouterAddress(Scheme.SMP, location, None), how) as client:
            await client.ping()
    except PeerIdentityMismatch:
        return "another router answers there"
    except TocsinError as error:
        return str(error)[:120]
    return ""
