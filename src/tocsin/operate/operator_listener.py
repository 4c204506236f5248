"""A TCP port for operators: a few short conversations in text, one task each.

Connections beyond the limit are closed at once. An exception in a conversation is logged and ends only that
conversation. A client that disconnects or is too slow is not an error.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeAlias

from tocsin.errors import ConnectFailed
from tocsin.transport.socket_options import keep_alive

CLOSE_SECONDS: Final = 10.0
"""How long a client may take to read the end of an answer."""

Converse: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Handles one connection. When it returns, everything written is sent and the connection is closed."""

logger = logging.getLogger(__name__)


class OperatorListener:
    """Serves while its `async with` block runs."""

    def __init__(
        self, converse: Converse, *, name: str, host: str, port: int, max_connections: int, max_bytes: int
    ) -> None:
        """Opens nothing yet. `name` is for the log. Reads at most `max_bytes` ahead.

        With `port` 0 the system chooses one; read it from the property `port`.
        """
        self._conversation = converse
        self._name = name
        self._host = host
        self._port = port
        self._max_connections = max_connections
        self._max_bytes = max_bytes
        self._tasks = asyncio.TaskGroup()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return self._port

    async def __aenter__(self) -> Self:
        """Raises ConnectFailed when the address cannot be listened on."""
        await self._tasks.__aenter__()
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self._port, limit=self._max_bytes
            )
        except OSError as error:
            await self._tasks.__aexit__(None, None, None)
            raise ConnectFailed(
                f"cannot listen on {self._host} port {self._port}: {_reason(error)}"
            ) from error
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        keep_alive(writer.get_extra_info("socket"))
        if len(self._serving) >= self._max_connections:
            writer.transport.abort()
            return
        task = self._tasks.create_task(self._serve(reader, writer), name=self._name)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_closed = False
        try:
            await self._conversation(reader, writer)
            async with asyncio.timeout(CLOSE_SECONDS):
                writer.close()
                await writer.wait_closed()
            is_closed = True
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client is gone, or too slow
        except Exception:
            logger.exception("%s: a connection failed", self._name)
        finally:
            # A transport that has sent a long answer and closed itself can no longer be aborted.
            if not is_closed:
                writer.transport.abort()


def _reason(error: OSError) -> str:
    """One clause, because asyncio's text repeats the address. Errors of name resolution have negative numbers."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
