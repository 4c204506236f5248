"""A router's port for its operator: one command per line, on 127.0.0.1 only.

A session starts without rights; `auth <password>` gives it the role of that password. Each router's own session
defines the commands. The length of a line, the idle time and the number of sessions are bounded.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol

from tocsin.errors import StoreError
from tocsin.operate.operator_listener import OperatorListener

HOST: Final = "127.0.0.1"
MAX_LINE_BYTES: Final = 4096
MAX_WRONG_PASSWORDS: Final = 3
"""A session with this many ends."""


class Role(IntEnum):
    """Each role may do everything that the roles before it may."""

    NOBODY = 0
    USER = 1
    ADMIN = 2


@dataclass(frozen=True, slots=True)
class ControlPasswords:
    admin: str | None = field(default=None, repr=False)
    user: str | None = field(default=None, repr=False)

    def role_of(self, password: str) -> Role:
        """Compare both passwords in constant time, so that the time reveals neither."""
        is_admin = _same(password, self.admin)
        is_user = _same(password, self.user)
        if is_admin:
            return Role.ADMIN
        return Role.USER if is_user else Role.NOBODY


def _same(password: str, expected: str | None) -> bool:
    matches = hmac.compare_digest(password.encode(), (expected or "").encode())
    return matches and bool(expected)


class LineSession(Protocol):
    """One operator's session, without its connection."""

    @property
    def ended(self) -> bool:
        """Whether the last line ended the session."""

    async def answer(self, line: str) -> str:
        """The answer to a line, which may be empty."""


@dataclass(frozen=True, slots=True)
class ControlLimits:
    max_sessions: int = 8
    idle_seconds: float = 600.0
    """A session that is idle for longer is closed."""
    write_seconds: float = 30.0
    """How long an operator may take to read an answer."""


class LinePort(OperatorListener):
    """Serves operators while its `async with` block runs."""

    def __init__(
        self,
        new_session: Callable[[], LineSession],
        *,
        greeting: str,
        port: int,
        limits: ControlLimits | None = None,
    ) -> None:
        """Opens nothing yet. With `port` 0 the system chooses one; read it from the property `port`."""
        self._limits = limits or ControlLimits()
        super().__init__(
            self._converse,
            name="control port",
            host=HOST,
            port=port,
            max_connections=self._limits.max_sessions,
            max_bytes=MAX_LINE_BYTES,
        )
        self._new_session = new_session
        self._greeting = greeting

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = self._new_session()
        await self._write(writer, self._greeting)
        while not session.ended:
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    line = await reader.readline()
            except ValueError:  # readline raises it for a line over the limit
                await self._write(writer, "error: the line is too long")
                break
            if not line:
                break
            if answer := await session.answer(line.decode("utf-8", "replace")):
                await self._write(writer, answer)

    async def _write(self, writer: asyncio.StreamWriter, text: str) -> None:
        async with asyncio.timeout(self._limits.write_seconds):
            writer.write(f"{text}\n".encode())
            await writer.drain()


SECONDS: Final = 60.0
GREETING_LINES: Final = 2


async def order_of_operator(port: int, password: str, order: str) -> str | None:
    """Send an order and return the router's answer; None if no router listens. Raises StoreError if it refuses."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return None
    try:
        async with asyncio.timeout(SECONDS):
            for _ in range(GREETING_LINES):
                await reader.readline()
            writer.write(f"auth {password}\n{order}\nquit\n".encode())
            await reader.readline()
            answer = (await reader.readline()).decode().strip()
    except (OSError, TimeoutError) as error:
        raise StoreError(
            f"the router's control port does not answer ({type(error).__name__}): restart the router"
        ) from error
    finally:
        writer.close()
    if not answer.startswith("ok"):
        raise StoreError(
            f"the router refused {order.partition(' ')[0]}: {answer or 'no answer'}. Check control_port_admin_password"
        )
    return answer
