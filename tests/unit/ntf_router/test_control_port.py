"""The operator's port of an NTF router: the reference's words, and who may say them (ntf.md 4.14)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from tocsin.errors import StoreError
from tocsin.ntf_router.control_port import ENGINE_HELP, GREETING, HELP, NtfControlSession
from tocsin.ntf_router.settings.settings import DeliveryEngine
from tocsin.operate.control_port import MAX_WRONG_PASSWORDS, ControlPasswords, LinePort

PASSWORDS = ControlPasswords(admin="admin-pass", user="user-pass")


class FakeControl:
    def stats(self) -> Iterator[str]:
        yield "fromTime: now"
        yield "tknCreated: 1"

    def process(self) -> Iterator[str]:
        yield "threads: 1"

    def server_info(self, *, with_names: bool) -> Iterator[str]:
        yield "Threads: 5"
        if with_names:
            yield "own: smp.own.test"

    async def resubscribe(self) -> int:
        return 3

    async def deliver_pending(self) -> int:
        raise StoreError("the store is away")

    async def choose_engine(self, token_id: bytes, engine: DeliveryEngine | None) -> str:
        if token_id != b"token":
            raise StoreError("there is no such token")
        return "share" if engine is None else engine.value


def session(passwords: ControlPasswords = PASSWORDS) -> NtfControlSession:
    return NtfControlSession(FakeControl(), passwords)


async def talk(*lines: str) -> list[str]:
    talking = session()
    return [await talking.answer(line) for line in lines]


@pytest.mark.parametrize(
    ("password", "role"), [("admin-pass", "CPRAdmin"), ("user-pass", "CPRUser"), ("other", "CPRNone")]
)
async def test_a_password_gives_its_role(password: str, role: str) -> None:
    assert await talk(f"auth {password}") == [f"Current role is {role}"]


async def test_a_role_that_is_set_stays() -> None:
    assert await talk("auth user-pass", "auth user-pass", "auth admin-pass", "auth wrong", "server-info") == [
        "Current role is CPRUser",
        "Current role is CPRUser",
        "Current role is CPRUser, start new session to change.",
        "Current role is CPRUser, start new session to change.",
        "Threads: 5",
    ]


async def test_a_wrong_password_can_be_followed_by_the_right_one() -> None:
    assert await talk("auth x", "auth admin-pass") == ["Current role is CPRNone", "Current role is CPRAdmin"]


async def test_the_last_wrong_password_ends_the_session() -> None:
    talking = session()
    for number in range(MAX_WRONG_PASSWORDS):
        assert not talking.ended
        await talking.answer(f"auth wrong{number}")
    assert talking.ended


async def test_without_passwords_nobody_has_a_role() -> None:
    talking = session(ControlPasswords())
    for password in ("None", "''", "x"):
        assert await talking.answer(f"auth {password}") == "Current role is CPRNone"


async def test_statistics_need_a_role_and_the_process_does_not() -> None:
    assert await talk("stats", "server-info", "stats-rts", "help") == ["AUTH", "AUTH", "threads: 1", HELP]
    assert await talk("auth user-pass", "stats") == [
        "Current role is CPRUser",
        "fromTime: now\ntknCreated: 1",
    ]


async def test_only_the_administrator_sees_names() -> None:
    assert (await talk("auth admin-pass", "server-info"))[1] == "Threads: 5\nown: smp.own.test"
    assert (await talk("auth user-pass", "server-info"))[1] == "Threads: 5"


async def test_only_the_administrator_gives_orders() -> None:
    assert await talk("resubscribe", "deliver-pending") == ["AUTH", "AUTH"]
    assert (await talk("auth user-pass", "resubscribe"))[1] == "AUTH"
    assert (await talk("auth admin-pass", "resubscribe"))[1] == "ok, 3 SMP routers"
    assert (await talk("auth admin-pass", "deliver-pending"))[1] == "error: the store is away"


async def test_the_engine_of_a_token_is_chosen_by_the_administrator() -> None:
    assert await talk("engine dG9rZW4= spark") == ["AUTH"]
    assert (await talk("auth user-pass", "engine dG9rZW4= spark"))[1] == "AUTH"
    lines = ("engine dG9rZW4= spark", "engine dG9rZW4 inline", "engine dG9rZW4= share", "engine AAAA spark")
    assert (await talk("auth admin-pass", *lines))[1:] == [
        "ok, spark",
        "ok, inline",
        "ok, share",
        "error: there is no such token",
    ]


@pytest.mark.parametrize("choice", ["", "dG9rZW4=", "dG9rZW4= both", "dG9rZW4= spark now", "! spark"])
async def test_a_choice_of_an_engine_that_is_none_is_explained(choice: str) -> None:
    assert (await talk("auth admin-pass", f"engine {choice}"))[1] == ENGINE_HELP


async def test_other_lines() -> None:
    assert HELP == "commands: stats, stats-rts, server-info, resubscribe, deliver-pending, engine, help, quit"
    empty, spaces, unknown, more, bare = await talk("", "   \r\n", "delete everything", "stats now", "auth")
    assert (empty, spaces) == ("", "")
    for answer in (unknown, more, bare):
        assert answer.startswith("error: ")
        assert "everything" not in answer


async def test_quit_ends_the_session() -> None:
    talking = session()
    assert await talking.answer("quit") == ""
    assert talking.ended


async def test_passwords_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await talk("auth wrong-pass", "auth admin-pass", "stats", "admin-pass")
    assert "control port: stats by admin" in caplog.text
    assert "-pass" not in caplog.text


async def test_over_a_socket_a_session_begins_with_the_greeting() -> None:
    async with LinePort(session, greeting=GREETING, port=0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(b"auth admin-pass\r\nhelp\nquit\n")
        async with asyncio.timeout(5):
            text = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
    assert text == (
        f"Ntf server control port\n'help' for supported commands\nCurrent role is CPRAdmin\n{HELP}\n"
    )
