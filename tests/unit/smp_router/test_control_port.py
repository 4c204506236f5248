"""The operator's port: sessions alone, and over a real socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date

import pytest

from tocsin.errors import StoreError
from tocsin.operate.control_port import (
    MAX_LINE_BYTES,
    MAX_WRONG_PASSWORDS,
    ControlLimits,
    ControlPasswords,
    Role,
)
from tocsin.protocol.error_codes import Blocked
from tocsin.smp_router.control_commands import COMMAND_HELP, parse_control_line
from tocsin.smp_router.control_port import (
    GREETING,
    ControlPort,
    ControlSession,
    DailyQuota,
)

HOST = "127.0.0.1"
PASSWORDS = ControlPasswords(admin="admin-pass", user="user-pass")
QUEUE, QUEUE_TEXT = b"\x01" * 24, "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"
OTHER_TEXT = "AgICAgICAgICAgICAgICAgICAgICAgIC"
MONDAY, TUESDAY = date(2026, 11, 16), date(2026, 11, 17)


class FakeControl:
    """One queue, and what was done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.broken = False

    def stats(self) -> str:
        return "queues_created: 1\nmessages_sent: 2"

    def clients(self) -> list[str]:
        return ["clientId,subscriptions", "1,3"]

    def queue_status(self, sender_or_link_id: bytes) -> str | None:
        return "status: active" if sender_or_link_id == QUEUE else None

    async def block(self, sender_or_link_id: bytes, blocked: Blocked) -> bool:
        return self._do(f"block {blocked.reason}", sender_or_link_id)

    async def unblock(self, sender_or_link_id: bytes) -> bool:
        return self._do("unblock", sender_or_link_id)

    async def delete(self, sender_or_link_id: bytes) -> bool:
        return self._do("delete", sender_or_link_id)

    async def save(self) -> None:
        self._do("save", QUEUE)

    def _do(self, what: str, queue_id: bytes) -> bool:
        if self.broken:
            raise StoreError("the disk is full")
        if queue_id == QUEUE:
            self.done.append(what)
        return queue_id == QUEUE


class FakeDiagnostics:
    """Two lines each."""

    def process(self) -> list[str]:
        return ["uptime_seconds: 5", "tasks: 2"]

    def sockets(self) -> list[str]:
        return ["clients: 1", "services: 0"]

    def server_info(self) -> list[str]:
        return ["version: 1", "ports: 5223"]

    def tasks(self) -> list[str]:
        return ["count,function", "1,Listener._serve"]

    def connection_tasks(self) -> list[str]:
        return ["task,function,waits_at", "Task-1,Listener._serve,x.py:1"]


class Calendar:
    def __init__(self) -> None:
        self.today = MONDAY

    def __call__(self) -> date:
        return self.today


def session_of(
    control: FakeControl, role: Role = Role.NOBODY, quota: int = 20, today: Calendar | None = None
) -> ControlSession:
    session = ControlSession(control, FakeDiagnostics(), PASSWORDS, DailyQuota(quota), today or Calendar())
    session._role = role
    return session


USER_LINES = [
    ("stats", "queues_created: 1\nmessages_sent: 2"),
    (f"status {QUEUE_TEXT}", "status: active"),
    (f"status {OTHER_TEXT}", "error: AUTH"),
    (f"block {QUEUE_TEXT} reason=spam", "ok"),
    (f"block {OTHER_TEXT} reason=spam", "error: AUTH"),
    (f"unblock {QUEUE_TEXT}", "ok"),
    (f"unblock {OTHER_TEXT}", "error: AUTH"),
    ("stats-rts", "uptime_seconds: 5\ntasks: 2"),
    ("sockets", "clients: 1\nservices: 0"),
    ("server-info", "version: 1\nports: 5223"),
]
ADMIN_LINES = [
    ("clients", "clientId,subscriptions\n1,3"),
    (f"delete {QUEUE_TEXT}", "ok"),
    (f"delete {OTHER_TEXT}", "error: AUTH"),
    ("save", "server state saved!"),
    ("threads", "count,function\n1,Listener._serve"),
    ("socket-threads", "task,function,waits_at\nTask-1,Listener._serve,x.py:1"),
]


def test_every_command_that_needs_a_role_is_tried_below() -> None:
    tried = {line.split()[0] for line, _ in USER_LINES + ADMIN_LINES}
    assert tried == {word for word, explained in COMMAND_HELP.items() if explained.role > Role.NOBODY}


@pytest.mark.parametrize(("line", "answer"), USER_LINES + ADMIN_LINES)
async def test_each_role_may_do_what_it_should(line: str, answer: str) -> None:
    needed = Role.USER if (line, answer) in USER_LINES else Role.ADMIN
    for role in Role:
        control = FakeControl()
        expected = answer if role >= needed else "AUTH"
        assert await session_of(control, role).answer(line) == expected
        if role < needed:
            assert control.done == []


async def test_passwords_give_roles() -> None:
    session = session_of(FakeControl())
    assert await session.answer("auth user-pass") == ""
    assert await session.answer("stats") != "AUTH"
    assert await session.answer("save") == "AUTH"
    assert await session.answer("auth admin-pass") == ""
    assert await session.answer("save") == "server state saved!"
    assert await session.answer("auth wrong") == "AUTH"
    assert await session.answer("stats") == "AUTH"


@pytest.mark.parametrize("password", ["", "x", "admin-pass ", "Admin-pass", "ü"])
def test_no_other_password_gives_a_role(password: str) -> None:
    assert PASSWORDS.role_of(password) is Role.NOBODY
    assert ControlPasswords().role_of(password) is Role.NOBODY


async def test_a_session_ends_after_some_wrong_passwords() -> None:
    session = session_of(FakeControl())
    for number in range(1, MAX_WRONG_PASSWORDS + 1):
        assert await session.answer("auth wrong") == "AUTH"
        assert session.ended == (number == MAX_WRONG_PASSWORDS)


async def test_blocking_is_limited_by_day() -> None:
    control, today = FakeControl(), Calendar()
    session = session_of(control, Role.USER, quota=2, today=today)
    line = f"block {QUEUE_TEXT} reason=spam"
    assert await session.answer(f"block {OTHER_TEXT} reason=spam") == "error: AUTH"  # counts for nothing
    assert [await session.answer(line) for _ in range(2)] == ["ok", "ok"]
    assert "quota" in await session.answer(line)
    assert await session.answer(f"unblock {QUEUE_TEXT}") == "ok"
    today.today = TUESDAY
    assert await session.answer(line) == "ok"


@pytest.mark.parametrize(("limit", "allowed"), [(0, 1000), (-1, 0), (3, 3)])
def test_quota_may_be_unlimited_or_nothing(limit: int, allowed: int) -> None:
    quota = DailyQuota(limit)
    uses = 0
    while uses < 1000 and quota.allows(MONDAY):
        quota.use()
        uses += 1
    assert uses == allowed


async def test_a_store_that_fails_is_told_and_costs_no_quota() -> None:
    control = FakeControl()
    control.broken = True
    session = session_of(control, Role.ADMIN, quota=1)
    line = f"block {QUEUE_TEXT} reason=spam"
    assert await session.answer("save") == "error: the disk is full"
    assert await session.answer(line) == "error: the disk is full"
    control.broken = False
    assert await session.answer(line) == "ok"


async def test_help_shows_what_the_role_may_do() -> None:
    shown = {role: await session_of(FakeControl(), role).answer("help") for role in Role}
    assert "auth <password>" in shown[Role.NOBODY]
    assert "stats" not in shown[Role.NOBODY]
    assert "block <senderId>" in shown[Role.USER]
    assert "delete" not in shown[Role.USER]
    assert "delete" in shown[Role.ADMIN]


async def test_neither_passwords_nor_queue_ids_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    session = session_of(FakeControl())
    for line in ("auth hidden", "auth admin-pass", f"status {QUEUE_TEXT}", f"delete {QUEUE_TEXT}", "hidden"):
        await session.answer(line)
    assert "control port: delete by admin" in caplog.text
    for secret in ("hidden", "admin-pass", QUEUE_TEXT):
        assert secret not in caplog.text
    assert "hidden" not in repr([parse_control_line("auth hidden"), ControlPasswords("hidden", "hidden")])


class Operator:
    """The other end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def says(self, line: str) -> None:
        self.writer.write(f"{line}\r\n".encode())
        await self.writer.drain()

    async def reads(self) -> str:
        return (await self.reader.readline()).decode().removesuffix("\n")

    async def is_disconnected(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def operator_at(port: int) -> AsyncIterator[Operator]:
    reader, writer = await asyncio.open_connection(HOST, port)
    operator = Operator(reader, writer)
    try:
        yield operator
    finally:
        writer.transport.abort()


async def greeted(operator: Operator) -> None:
    assert [await operator.reads(), await operator.reads()] == GREETING.split("\n")


def port_of(control: FakeControl, limits: ControlLimits | None = None, quota: int = 20) -> ControlPort:
    return ControlPort(
        control,
        FakeDiagnostics(),
        PASSWORDS,
        port=0,
        daily_block_quota=quota,
        limits=limits,
        today=Calendar(),
    )


async def test_an_operator_logs_in_blocks_and_leaves() -> None:
    control = FakeControl()
    async with port_of(control) as served, operator_at(served.port) as operator:
        await greeted(operator)
        for line in ("stats", "", "auth user-pass", "stats", f"block {QUEUE_TEXT} reason=spam", "quit"):
            await operator.says(line)
        said = (await operator.reader.read()).decode().splitlines()
    assert said == ["AUTH", "queues_created: 1", "messages_sent: 2", "ok"]
    assert control.done == ["block spam"]


async def test_sessions_share_the_quota_but_not_the_role() -> None:
    control = FakeControl()
    async with (
        port_of(control, quota=1) as served,
        operator_at(served.port) as first,
        operator_at(served.port) as second,
    ):
        for operator in (first, second):
            await greeted(operator)
        await first.says("auth user-pass")
        await first.says(f"block {QUEUE_TEXT} reason=spam")
        assert await first.reads() == "ok"
        await second.says("stats")
        assert await second.reads() == "AUTH"
        await second.says("auth admin-pass")
        await second.says(f"block {QUEUE_TEXT} reason=spam")
        assert "quota" in await second.reads()


async def test_a_line_without_end_is_refused() -> None:
    async with port_of(FakeControl()) as served, operator_at(served.port) as operator:
        await greeted(operator)
        await operator.says("x" * 2 * MAX_LINE_BYTES)
        assert await operator.reads() == "error: the line is too long"
        assert await operator.is_disconnected()


async def test_bytes_that_are_no_text_are_an_unknown_command() -> None:
    async with port_of(FakeControl()) as served, operator_at(served.port) as operator:
        await greeted(operator)
        operator.writer.write(b"\xff\xfe\x00\n")
        assert (await operator.reads()).startswith("error: unknown command")


async def test_guessing_passwords_ends_the_connection() -> None:
    async with port_of(FakeControl()) as served, operator_at(served.port) as operator:
        await greeted(operator)
        for _ in range(MAX_WRONG_PASSWORDS):
            await operator.says("auth guess")
            assert await operator.reads() == "AUTH"
        assert await operator.is_disconnected()


async def test_sessions_beyond_the_limit_are_closed_at_once() -> None:
    async with port_of(FakeControl(), ControlLimits(max_sessions=1)) as served:
        async with operator_at(served.port) as first:
            await greeted(first)
            async with operator_at(served.port) as second:
                assert await second.is_disconnected()
            await first.says("quit")
            assert await first.is_disconnected()
        async with operator_at(served.port) as third:
            await greeted(third)


async def test_a_forgotten_session_is_closed() -> None:
    async with (
        port_of(FakeControl(), ControlLimits(idle_seconds=0.01)) as served,
        operator_at(served.port) as operator,
    ):
        await greeted(operator)
        assert await operator.is_disconnected()


async def test_a_failing_command_ends_its_session_only(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(FakeControl):
        def stats(self) -> str:
            raise ZeroDivisionError

    async with port_of(Failing()) as served:
        async with operator_at(served.port) as first:
            await greeted(first)
            await first.says("auth user-pass")
            await first.says("stats")
            assert await first.is_disconnected()
        async with operator_at(served.port) as second:
            await greeted(second)
    assert "control port: a connection failed" in caplog.text
