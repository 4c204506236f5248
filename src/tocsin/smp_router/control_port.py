"""The operator's port of an SMP router (smp.md 10.2).

Answers use the reference's words where scripts may read them (`processCP` in Messaging/Server.hs): nothing for
`auth`, `AUTH` for commands that the role does not allow, `ok`, `error: …`. Unlike the reference, we answer a wrong
password with `AUTH`, and the third one in a session ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Final, Protocol, assert_never

from tocsin.errors import DecodeError, StoreError
from tocsin.operate.control_port import (
    MAX_WRONG_PASSWORDS,
    ControlLimits,
    ControlPasswords,
    LinePort,
    Role,
)
from tocsin.protocol.error_codes import Blocked
from tocsin.smp_router.control_commands import (
    COMMAND_HELP,
    Authenticate,
    BlockQueue,
    ControlCommand,
    OnQueue,
    Plain,
    Word,
    parse_control_line,
)

GREETING: Final = "SMP server control port\n'help' for supported commands"

logger = logging.getLogger(__name__)


class SmpControl(Protocol):
    """Everything an operator can see and do. Changes return when they are durable, and raise StoreError."""

    def stats(self) -> str:
        """`name: number` lines."""

    def clients(self) -> Iterable[str]:
        """Comma-separated lines, headings first."""

    def queue_status(self, sender_or_link_id: bytes) -> str | None:
        """One line, or None if there is no such queue."""

    async def block(self, sender_or_link_id: bytes, blocked: Blocked) -> bool:
        """False if there is no such queue."""

    async def unblock(self, sender_or_link_id: bytes) -> bool:
        """False if there is no such queue."""

    async def delete(self, sender_or_link_id: bytes) -> bool:
        """False if there is no such queue."""

    async def save(self) -> None: ...


class SmpDiagnostics(Protocol):
    """Lines that describe the router's process."""

    def process(self) -> Iterable[str]:
        """Time, memory, garbage collection."""

    def sockets(self) -> Iterable[str]:
        """Open sockets by kind."""

    def server_info(self) -> Iterable[str]:
        """Version, address, settings without secrets."""

    def tasks(self) -> Iterable[str]:
        """The number of tasks of each kind."""

    def connection_tasks(self) -> Iterable[str]:
        """The tasks that serve clients, one by one."""


class DailyQuota:
    """Limits how often something may happen in a day; 0 is any number of times, -1 never."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._day: date | None = None
        self._used = 0

    def allows(self, today: date) -> bool:
        if today != self._day:
            self._day, self._used = today, 0
        return self._limit == 0 or self._used < self._limit

    def use(self) -> None:
        self._used += 1

    def give_back(self) -> None:
        """Undo a use that had no effect."""
        self._used = max(0, self._used - 1)


def _today() -> date:
    return datetime.now(UTC).date()


class ControlSession:
    """One operator's session, without its connection."""

    def __init__(
        self,
        control: SmpControl,
        diagnostics: SmpDiagnostics,
        passwords: ControlPasswords,
        quota: DailyQuota,
        today: Callable[[], date] = _today,
    ) -> None:
        self._control = control
        self._diagnostics = diagnostics
        self._passwords = passwords
        self._quota = quota
        self._today = today
        self._role = Role.NOBODY
        self._wrong_passwords = 0
        self.ended = False
        """Whether the last line ended the session."""

    async def answer(self, line: str) -> str:
        """The answer to a line, which may be empty."""
        try:
            command = parse_control_line(line)
        except DecodeError as error:
            return f"error: {error}"
        if command is None:
            return ""
        if self._role < COMMAND_HELP[command.word].role:
            logger.warning("control port: refused %s, which the role does not allow", command.word)
            return "AUTH"
        if COMMAND_HELP[command.word].role > Role.NOBODY:
            logger.info("control port: %s by %s", command.word, self._role.name.lower())
        try:
            return await self._do(command)
        except StoreError as error:
            return f"error: {error}"

    async def _do(self, command: ControlCommand) -> str:
        match command:
            case Authenticate(password):
                return self._authenticate(password)
            case BlockQueue(queue_id, blocked):
                return await self._block(queue_id, blocked)
            case OnQueue(Word.STATUS, queue_id):
                return self._control.queue_status(queue_id) or "error: AUTH"
            case OnQueue(Word.DELETE, queue_id):
                return _outcome(await self._control.delete(queue_id))
            case OnQueue(_, queue_id):
                return _outcome(await self._control.unblock(queue_id))
            case Plain(word):
                return await self._plain(word)
            case _:
                assert_never(command)

    async def _plain(self, word: Word) -> str:
        match word:
            case Word.STATS:
                return self._control.stats()
            case Word.CLIENTS:
                return "\n".join(self._control.clients())
            case Word.SAVE:
                await self._control.save()
                return "server state saved!"
            case Word.HELP:
                return _help(self._role)
            case Word.QUIT:
                self.ended = True
                return ""
            case _:
                return "\n".join(self._diagnose(word))

    def _diagnose(self, word: Word) -> Iterable[str]:
        match word:
            case Word.STATS_RTS:
                return self._diagnostics.process()
            case Word.SOCKETS:
                return self._diagnostics.sockets()
            case Word.SERVER_INFO:
                return self._diagnostics.server_info()
            case Word.THREADS:
                return self._diagnostics.tasks()
            case Word.SOCKET_THREADS:
                return self._diagnostics.connection_tasks()
            case _:
                raise AssertionError(f"{word} takes arguments")

    def _authenticate(self, password: str) -> str:
        self._role = self._passwords.role_of(password)
        if self._role > Role.NOBODY:
            return ""
        self._wrong_passwords += 1
        self.ended = self._wrong_passwords >= MAX_WRONG_PASSWORDS
        logger.warning("control port: wrong password")
        return "AUTH"

    async def _block(self, queue_id: bytes, blocked: Blocked) -> str:
        if not self._quota.allows(self._today()):
            return "error: the daily quota for blocking queues is used up"
        self._quota.use()  # before waiting: other sessions share it
        found = False
        try:
            found = await self._control.block(queue_id, blocked)
        finally:
            if not found:
                self._quota.give_back()
        return _outcome(found)


def _outcome(found: bool) -> str:
    return "ok" if found else "error: AUTH"


def _help(role: Role) -> str:
    lines = [f"  {each.usage}  -  {each.about}" for each in COMMAND_HELP.values() if each.role <= role]
    more = [] if role is Role.ADMIN else ["More commands after auth."]
    return "\n".join(["commands:", *lines, *more])


class ControlPort(LinePort):
    """Serves operators while its `async with` block runs."""

    def __init__(
        self,
        control: SmpControl,
        diagnostics: SmpDiagnostics,
        passwords: ControlPasswords,
        *,
        port: int,
        daily_block_quota: int,
        limits: ControlLimits | None = None,
        today: Callable[[], date] = _today,
    ) -> None:
        """Opens nothing yet. With `port` 0 the system chooses one; read it from the property `port`."""
        quota = DailyQuota(daily_block_quota)
        super().__init__(
            lambda: ControlSession(control, diagnostics, passwords, quota, today),
            greeting=GREETING,
            port=port,
            limits=limits,
        )
