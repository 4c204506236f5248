"""`tocsin agent …` when something is not as it should be: one sentence with the next step, and the exit code."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.doubles.agent_commands import AgentCommands, connected_commands
from tests.doubles.agent_harness import ntf_address, smp_address
from tests.doubles.ntf_harness import ntf_router
from tests.doubles.smp_harness import smp_router
from tocsin.agent.runtime.events import MessageArrived
from tocsin.agent.store.records import AgentConnection
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.cli.agent.next_steps import sentence
from tocsin.cli.agent.output import event_sentence, harmless
from tocsin.cli.main import run
from tocsin.clients import RouterRefused
from tocsin.errors import (
    AgentError,
    BadBox,
    ConnectFailed,
    HandshakeFault,
    HandshakeRefused,
    PeerIdentityMismatch,
    ResponseTimeout,
    StoreError,
    TocsinError,
)
from tocsin.protocol.error_codes import CommandFault, ErrorCode

NOBODY = "smp://H5uLO4QIu8uoFtuKlwNYjWEzzYcZ1Ww7dbXr44KY3mA=@127.0.0.1:1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["agent"],
        ["agent", "no-such-command"],
        ["agent", "register"],
        ["agent", "register", "apns_test abcd", "--mode", "sometimes"],
        ["agent", "verify"],
        ["agent", "wake"],
        ["agent", "send", "only-a-connection"],
        ["agent", "status", "--timeout", "soon"],
        ["agent", "listen", "--count", "many"],
        ["agent", "passphrase"],
        ["agent", "passphrase", "--remove", "--new-passphrase-file", "new"],
    ],
)
def test_a_wrong_call_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(arguments)
    assert end.value.code == 2


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (StoreError("the agent's store is in use by another agent"), "end the other"),
        (StoreError("the agent's store is encrypted: a passphrase is needed"), "--passphrase-file"),
        (StoreError("the passphrase of the agent's store is wrong"), "--passphrase-file"),
        (AgentError("9 messages wait for the app to settle them: no more are fetched"), "run this again"),
        (StoreError("the agent's store is not encrypted: open it without"), "leave out"),
        (StoreError("the disk is full"), "check the folder"),
        (AgentError("there is no token: register one"), "tocsin agent register"),
        (AgentError("there is no token that this push could be for"), "then `verify`"),
        (AgentError("the connection is not ready: the other side has not joined yet"), "tocsin agent listen"),
        (BadBox("no"), "an unaltered push of this token"),
        (PeerIdentityMismatch("no"), "fingerprint"),
        (ConnectFailed("no"), "tocsin ping"),
        (HandshakeRefused(HandshakeFault.VERSION, "no"), "tocsin ping"),
        (RouterRefused(ErrorCode.AUTH), "doctor"),
        (RouterRefused(ErrorCode.QUOTA), "again later"),
        (RouterRefused(CommandFault.SYNTAX), "--compact"),
        (ResponseTimeout("no"), "again later"),
    ],
)
def test_every_failure_names_the_next_step(error: TocsinError, says: str) -> None:
    assert says in sentence(error)
    assert str(error) in sentence(error)


async def test_commands_without_an_agent_say_how_to_make_one(tmp_path: Path) -> None:
    ran = await AgentCommands(tmp_path / "nothing")("status")
    assert ran.code == 1
    assert "tocsin agent init" in ran.error
    assert ran.error.count("\n") == 1
    assert not (tmp_path / "nothing").exists()


async def test_an_agent_is_not_overwritten_and_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    alice = AgentCommands(tmp_path / "alice")
    assert (await alice.ok("init", "--dry-run"))["made"] is False
    assert not alice.folder.exists()
    await alice.ok("init")
    again = await alice("init")
    assert again.code == 1
    assert "another --folder" in again.error


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--smp-server", "nonsense", "--smp-server: not a router address"),
        ("--smp-server", NOBODY.replace("smp:", "ntf:"), "--smp-server: an smp address is expected"),
        ("--ntf-server", NOBODY, "--ntf-server: an ntf address is expected"),
        ("--check-minutes", "0", "at least 1"),
        ("--passphrase-file", "no-such-file", "cannot be read"),
    ],
)
async def test_init_refuses_what_it_cannot_use(tmp_path: Path, option: str, value: str, says: str) -> None:
    alice = AgentCommands(tmp_path / "alice")
    ran = await alice("init", option, value)
    assert ran.code == 1
    assert says in ran.error
    assert not alice.folder.exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[AGENT]\nsmp_server = x\n", "[AGENT] smp_server is not a setting"),
        ("[AGENT]\nsmp_servers = x\n", "smp_servers: not a router address"),
        ("[AGENT]\ncheck_minutes = often\n", "check_minutes: write a number"),
        ("smp_servers = x\n", "cannot be read"),
    ],
)
async def test_a_wrong_settings_file_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init", "--check-minutes", "5")
    (alice.folder / "agent.ini").write_text(text)
    ran = await alice("status")
    assert ran.code == 1
    assert says in ran.error


async def test_the_passphrase_may_come_from_a_file_and_must_be_right(tmp_path: Path) -> None:
    alice, file = AgentCommands(tmp_path / "alice"), tmp_path / "passphrase"
    file.write_text("correct horse\n")
    assert (await alice.ok("init", "--passphrase-file", str(file)))["encrypted"] is True
    await alice.ok("status", "--passphrase-file", str(file))
    file.write_text("battery\n")
    wrong = await alice("status", "--passphrase-file", str(file))
    assert (wrong.code, "wrong" in wrong.error) == (1, True)
    file.write_text("\n")
    empty = await alice("status", "--passphrase-file", str(file))
    assert "no passphrase" in empty.error
    missing = await alice("status")
    assert "TOCSIN_AGENT_PASSPHRASE" in missing.error


async def test_two_commands_cannot_use_one_agent_at_once(tmp_path: Path) -> None:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init")
    async with opened_agent_store(alice.folder / "agent.db"):
        ran = await alice("status", "--json")
    assert ran.code == 1
    assert ran.json()["next_step"] == "end the other `tocsin agent` that uses this folder"


async def test_what_cannot_be_sent_or_registered_is_refused(tmp_path: Path) -> None:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init", "--smp-server", NOBODY)
    for arguments, says in [
        (("register", "apns_test", "xyz"), "apns_test abcd1234"),
        (("register", "apns_test", "abcd"), "--ntf-server"),
        (("connect", "not an invitation"), "--help"),
        (("connect",), "tocsin ping"),
        (("send", "nobody", "x" * 16_000), "in parts"),
        (("send", "nobody", "x"), "lists the connections"),
        (("unregister",), "register"),
        (("verify", "--code=abcd"), "register"),
        (("wake", "no-such-file.json"), "a file or -"),
        (("wake", '{"aps":{}}'), "whole JSON of a push"),
    ]:
        ran = await alice(*arguments, timeout="1")
        assert ran.code == 1, (arguments, ran)
        assert says in ran.error, (arguments, ran)
        assert ran.error.count("\n") == 1, ran


async def test_pushes_that_lead_nowhere_say_why(tmp_path: Path) -> None:
    async with smp_router() as smp, ntf_router() as ntf:
        alice, bob = AgentCommands(tmp_path / "alice", b"aaaa"), AgentCommands(tmp_path / "bob", b"bbbb")
        await alice.init(smp, ntf)
        await bob.init(smp, ntf)
        await alice.activate(ntf)
        await bob.activate(ntf)
        at_alice, at_bob = await connected_commands(alice, bob)
        push = await alice.push(ntf)
        foreign = await bob("wake", push)
        assert foreign.code == 1
        assert "an unaltered push of this token" in foreign.error
        no_verification = await alice("verify", push)
        assert "tocsin agent wake" in no_verification.error
        await alice.ok("wake", push)
        await bob.ok("send", at_bob, "\x1b[31mred")
        push = await alice.push(ntf)
        once = await alice("wake", push)
        assert "\\x1b[31mred" in once.out
        assert "\x1b" not in once.out
        replayed = await alice.ok("wake", push)
        assert (replayed["messages"], replayed["failures"]) == ([], [])
        await alice.ok("delete", at_alice)
        gone = await alice.ok("wake", push)
        assert [item["reason"] for item in gone["unreadable"]] == ["no connection has this queue"] * len(
            gone["unreadable"]
        )
        assert gone["unreadable"]


async def test_a_router_that_is_down_fails_the_fetch_and_loses_nothing(tmp_path: Path) -> None:
    alice, bob = AgentCommands(tmp_path / "alice", b"aaaa"), AgentCommands(tmp_path / "bob", b"bbbb")
    async with ntf_router() as ntf:
        async with smp_router() as smp:
            await alice.init(smp, ntf)
            await bob.init(smp, ntf)
            await connected_commands(alice, bob)
        ran = await alice("wake", '{"notificationData":{"checkMessages":true}}', "--json", timeout="1")
        assert ran.code == 1
        [failure] = ran.json()["failures"]
        assert "no connection" in failure["reason"]
        listening = await alice("listen", "--for", "0.05", "--json", timeout="1")
        assert listening.code == 0
        assert "not subscribed" in [line["event"] for line in listening.lines()]


async def test_listening_ends_with_ctrl_c_as_if_nothing_had_happened(tmp_path: Path) -> None:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init")
    process = await asyncio.create_subprocess_exec(*alice.process_words("listen", "--json"), stdout=PIPE)
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline()) == {"event": "listening", "connections": 0}
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0


async def test_the_servers_of_a_registration_are_remembered(tmp_path: Path) -> None:
    async with smp_router() as smp, ntf_router() as ntf:
        alice = AgentCommands(tmp_path / "alice")
        await alice.ok("init", "--smp-server", str(smp_address(smp)), "--check-minutes", "10")
        await alice.ok("register", alice.device_text, "--ntf-server", str(ntf_address(ntf)))
        known = await alice.ok("status")
        assert known["ntf_servers"] == [str(ntf_address(ntf))]
        assert known["smp_servers"] == [str(smp_address(smp))]
        assert "check_minutes = 10" in (alice.folder / "agent.ini").read_text()


async def test_the_beginning_of_an_id_must_fit_one_connection(tmp_path: Path) -> None:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init")
    async with opened_agent_store(alice.folder / "agent.db") as store:
        for name in ("abcd0000abcd0000", "abcd1111abcd1111"):
            await store.add_connection(AgentConnection(name), None, None)
    for text, says in [
        ("", "no such connection"),
        ("b", "no such connection"),
        ("abcd", "2 connections begin"),
    ]:
        assert says in (await alice("delete", text, "--dry-run")).error
    assert (await alice.ok("delete", "abcd1", "--dry-run"))["connection"] == "abcd1111abcd1111"


def test_messages_cannot_command_the_terminal() -> None:
    assert harmless("a\nb\x9bc\x07") == "a\nb\\x9bc\\x07"
    said = event_sentence(MessageArrived("id", b"m", 0, b"\xff\xfe"))
    assert "not text" in said
