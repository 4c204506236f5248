"""One router for each schema, or one fleet: an advisory lock on a connection of its own, which says who holds it.

The instances of a fleet hold it together (`shared`). It keeps out routers that want the schema alone, and these keep
out the fleet.

Theory of operation. The lock belongs to the connection, so it ends with the router, however that ends. The name of the
connection tells the next router which host and process hold it. If the connection breaks, because the database was
restarted, the router makes no further statements (`ready`) until it has the lock again. If another router has taken it
meanwhile and keeps it, this one has lost the schema for good (`lost`).

The holder also counts on in a table (`count_in`). A database that counts less than the router has seen is an older
copy: a standby that was behind when it was promoted, or a former primary that is back. The router does not use it, and
waits for one that counts as much. Other connections of the router go to the server of the lock: they are made anew when
the lock is (`times_taken`), and a new one has to count as much (`check`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import platform
from typing import Any, Final

import asyncpg
from asyncpg import Connection, Record

from tocsin.durable.commits import PATIENCE, next_delay
from tocsin.durable.postgres.connecting import OlderDatabase, writer_options
from tocsin.durable.postgres.database_errors import AnyConnection, DatabaseUnavailable, translated
from tocsin.errors import StoreError

LOCK_WAIT: Final = 10.0
"""Seconds to wait for a router that is stopping, or whose end the server has not noticed."""
CONNECT_TIMEOUT: Final = 10.0
WATCH_SECONDS: Final = 5.0
"""Interval of looks at the connection."""
_NAME_CHARACTERS: Final = 63
"""PostgreSQL's limit of a connection's name."""
_LOW: Final = 0xFFFF_FFFF

_HOLDER: Final = """
    SELECT a.application_name AS name, to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS since
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.datname = current_database()
        AND l.classid::bigint = $1 AND l.objid::bigint = $2
"""

logger = logging.getLogger(__name__)


def process_name(program: str) -> str:
    """Return the name under which others see this process, such as `tocsin ntf, host a, process 17`."""
    end = f", process {os.getpid()}"
    return f"tocsin {program}, host {platform.node()}"[: _NAME_CHARACTERS - len(end)] + end


def schema_key(program: str, schema: str) -> int:
    """Return the key of the advisory lock of a schema."""
    digest = hashlib.sha256(f"tocsin {program} {schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


async def holder_of(connection: AnyConnection, key: int) -> str:
    """Say who holds an advisory lock, for an error message."""
    row = await connection.fetchrow(_HOLDER, key >> 32 & _LOW, key & _LOW)
    return "a router that has just ended" if row is None else f"{row['name']}, since {row['since']} UTC"


class SchemaInUse(DatabaseUnavailable):
    """Another router holds the lock, or the server still holds it for a connection that we lost."""


class SchemaOwner:
    """Holds the lock of one schema. Belongs to one event loop."""

    def __init__(self, url: str, program: str, schema: str, *, shared: bool = False) -> None:
        self._url: Final = url
        self._take: Final = f"SELECT pg_try_advisory_lock{'_shared' if shared else ''}($1)"
        self._program: Final = program
        self._schema: Final = schema
        self._key: Final = schema_key(program, schema)
        self._held: Final = asyncio.Event()
        self._failure: Final[asyncio.Future[StoreError]] = asyncio.get_running_loop().create_future()
        self._connection: Connection[Record] | None = None
        self._heartbeat: str | None = None
        self._beats = 0
        self._why: str | None = None
        self.times_taken = 0
        """How often the lock was taken. Each time it may be at another server."""
        self._task: asyncio.Task[None] | None = None

    async def acquire(self, wait: float) -> None:
        """Take the schema, and keep it until `close`. Raises StoreError that says who has it."""
        await self._lock(wait)
        self._task = asyncio.create_task(self._keep(), name="schema-owner")

    async def count_in(self, table: str) -> None:
        """Count in the column `beats` of a table with one row from now on. Raises StoreError."""
        assert self._connection is not None
        self._heartbeat = table
        with translated():
            await self._beat(self._connection)

    async def check(self, connection: AnyConnection) -> None:
        """Raise OlderDatabase if a new connection has reached a server that counts less than we have seen."""
        if self._heartbeat is not None:
            beats = await connection.fetchval(f"SELECT beats FROM {self._heartbeat}")  # noqa: S608 - no input
            if beats < self._beats:
                raise OlderDatabase(f"its heartbeat is {beats}, not {self._beats}")

    async def ready(self) -> None:
        """Return when the schema is ours. Raises StoreError if that takes too long."""
        if self._held.is_set():
            return
        if self._failure.done():
            raise StoreError(str(self._failure.result()))
        try:
            async with asyncio.timeout(PATIENCE):
                await self._held.wait()
        except TimeoutError:
            raise DatabaseUnavailable(self._why or f"the lock of the schema {self._schema} is lost") from None

    async def lost(self) -> StoreError:
        """Return when another router has taken the schema over."""
        return await asyncio.shield(self._failure)

    async def close(self) -> None:
        """Release the schema. Never raises."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=CONNECT_TIMEOUT)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()

    async def _keep(self) -> None:
        while True:
            await self._watch()
            self._held.clear()
            logger.error(
                "the lock of the schema %s is lost; nothing is written until it is back", self._schema
            )
            if not await self._lock_again():
                return
            logger.warning("the lock of the schema %s is back", self._schema)

    async def _watch(self) -> None:
        """Return when the connection is lost."""
        assert self._connection is not None
        gone = asyncio.Event()
        self._connection.add_termination_listener(lambda _connection: gone.set())
        while not (gone.is_set() or self._connection.is_closed()):
            try:
                async with asyncio.timeout(WATCH_SECONDS):
                    await gone.wait()
                return
            except TimeoutError:
                pass
            try:
                with translated():
                    await self._beat(self._connection)
            except StoreError as error:
                logger.warning("%s", error)
                self._connection.terminate()
                return

    async def _beat(self, connection: Connection[Record]) -> None:
        """Raises OlderDatabase if the database counts less than we did."""
        if self._heartbeat is None:
            await connection.fetchval("SELECT 1")
            return
        beats = await connection.fetchval(
            f"UPDATE {self._heartbeat} SET beats = beats + 1 WHERE beats >= $1 RETURNING beats",  # noqa: S608
            self._beats,
        )
        if beats is None:
            raise OlderDatabase(f"its heartbeat is behind {self._beats}")
        self._beats = beats

    async def _lock_again(self) -> bool:
        """Take the lock again. Returns False if another router keeps it."""
        delay = 0.0
        while True:
            try:
                await self._lock(LOCK_WAIT)
                return True
            except SchemaInUse as error:
                logger.critical("%s", error)
                self._failure.set_result(StoreError(str(error)))
                return False
            except StoreError as error:
                if isinstance(error, OlderDatabase):
                    logger.critical("%s", error)
                    self._why = str(error)
                delay = next_delay(delay)
                await asyncio.sleep(delay)

    async def _lock(self, wait: float) -> None:
        deadline, delay = asyncio.get_running_loop().time() + wait, 0.0
        told = False
        while True:
            try:
                self._connection = await self._connect()
                self._why = None
                self.times_taken += 1
                self._held.set()
                return
            except SchemaInUse as error:
                delay = next_delay(delay)
                if asyncio.get_running_loop().time() + delay > deadline:
                    raise
                if not told:
                    logger.warning("%s; waiting for up to %.0f seconds", error, wait)
                    told = True
            await asyncio.sleep(delay)

    async def _connect(self) -> Connection[Record]:
        settings: dict[str, Any] = {"application_name": process_name(self._program)}
        with translated():
            connection: Connection[Record] = await asyncpg.connect(
                self._url,
                timeout=CONNECT_TIMEOUT,
                command_timeout=CONNECT_TIMEOUT,
                server_settings=settings,
                **writer_options(self._url),
            )
        try:
            with translated():
                if await connection.fetchval(self._take, self._key):
                    if self._heartbeat is not None:
                        await self._beat(connection)
                    return connection
                holder = await holder_of(connection, self._key)
            raise SchemaInUse(
                f"another router uses the schema {self._schema} of this PostgreSQL database ({holder}): stop it first"
            )
        except BaseException:
            connection.terminate()
            raise
