"""`tocsin agent …` with real routers: two devices from their first command to a message that a push told of."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.agent_commands import AgentCommands, connected_commands
from tests.doubles.agent_harness import ntf_address, smp_address
from tests.doubles.ntf_harness import NtfHarness, ntf_router
from tests.doubles.smp_harness import SmpHarness, smp_router
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.cli import agent
from tocsin.cli.agent.folder import read_agent_file, write_agent_file
from tocsin.cli.main import build_parser
from tocsin.crypto.boxes import box_key
from tocsin.protocol.ntf.pushes import VerificationPush, parse_push_json, unseal_code
from tocsin.wire.base64url import encode_base64url


@asynccontextmanager
async def two_agents(
    tmp_path: Path,
) -> AsyncIterator[tuple[SmpHarness, NtfHarness, AgentCommands, AgentCommands]]:
    async with smp_router() as smp, ntf_router() as ntf:
        alice, bob = AgentCommands(tmp_path / "alice", b"aaaa"), AgentCommands(tmp_path / "bob", b"bbbb")
        await alice.init(smp, ntf)
        await bob.init(smp, ntf)
        yield smp, ntf, alice, bob


@pytest.mark.parametrize("command", agent.SUBCOMMANDS, ids=lambda module: module.NAME)
def test_every_command_has_help_with_an_example(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    name = command.NAME  # type: ignore[attr-defined]
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args(["agent", name, "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert f"example: tocsin agent {name}" in shown
    assert "--json" in shown


async def test_a_message_wakes_the_device_and_is_printed(tmp_path: Path) -> None:
    async with two_agents(tmp_path) as (_, ntf, alice, bob):
        registered = await alice.ok("register", alice.device_text, "--mode", "instant")
        assert registered["status"] == "REGISTERED"
        assert (await alice.ok("verify", await alice.push(ntf)))["status"] == "ACTIVE"
        at_alice, at_bob = await connected_commands(alice, bob)
        introduced = await alice.ok("wake", await alice.push(ntf))
        assert introduced["messages"] == []
        assert [item["connection"] for item in introduced["to_fetch"]] == [at_alice]

        sent = await bob("send", at_bob, "by push")
        assert sent.code == 0, sent
        push = await alice.push(ntf)
        looked = await alice.ok("wake", push, "--no-fetch")
        assert looked["messages"] == []
        woken = await alice("wake", push)
        assert woken.code == 0, woken
        assert "by push" in woken.out
        answered = await alice.ok("send", at_alice, "back")
        assert answered["bytes"] == 4
        heard = await bob("listen", "--count", "1", "--json")
        assert [line["text"] for line in heard.lines() if line["event"] == "message"] == ["back"]


async def test_the_whole_story_works_as_processes_with_files_and_a_passphrase(tmp_path: Path) -> None:
    secret = {"TOCSIN_AGENT_PASSPHRASE": "correct horse"}
    async with smp_router() as smp, ntf_router() as ntf:
        alice, bob = AgentCommands(tmp_path / "alice", b"aaaa"), AgentCommands(tmp_path / "bob", b"bbbb")
        await bob.init(smp, ntf)
        made = await alice.process(
            "init", "--smp-server", str(smp_address(smp)), "--json", environment=secret
        )
        assert made.json()["encrypted"] is True
        registered = await alice.process(
            "register", *alice.device_text.split(), "--ntf-server", str(ntf_address(ntf)), environment=secret
        )
        assert registered.code == 0, registered
        push = await alice.push(ntf)
        verified = await alice.process("verify", "-", stdin=push.encode(), environment=secret)
        assert "ACTIVE" in verified.out, verified
        invited = (await alice.process("connect", "--json", environment=secret)).json()
        joined = await bob.ok("connect", invited["invitation"])
        await alice.push(ntf)
        await bob.ok("send", joined["connection"], "hello process")
        (tmp_path / "push.json").write_text(await alice.push(ntf))
        woken = await alice.process("wake", str(tmp_path / "push.json"), environment=secret)
        assert (woken.code, woken.error) == (0, "")
        assert "hello process" in woken.out
        refused = await alice.process("status")
        assert refused.code == 1
        assert "TOCSIN_AGENT_PASSPHRASE" in refused.error


async def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init")
    assert stat.S_IMODE(alice.folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in alice.folder.iterdir()}
    assert modes["agent.ini"] == modes["agent.db"] == 0o600
    assert set(modes.values()) == {0o600}


async def test_verify_takes_the_code_itself(tmp_path: Path) -> None:
    async with two_agents(tmp_path) as (_, ntf, alice, _bob):
        await alice.ok("register", alice.device_text)
        push = parse_push_json((await alice.push(ntf)).encode())
        assert isinstance(push, VerificationPush)
        async with opened_agent_store(alice.folder / "agent.db") as store:
            token = await store.token()
        assert token is not None
        assert token.secret is not None
        code = encode_base64url(unseal_code(box_key(token.secret), push))
        assert (await alice.ok("verify", f"--code={code}"))["status"] == "ACTIVE"


async def test_status_tells_token_connections_and_what_is_next(tmp_path: Path) -> None:
    async with two_agents(tmp_path) as (_, ntf, alice, bob):
        empty = await alice.ok("status")
        assert (empty["token"], empty["connections"]) == (None, [])
        at_alice, _ = await connected_commands(alice, bob)
        await alice.activate(ntf)
        known = await alice.ok("status")
        assert known["token"] == {
            "provider": "apns_test",
            "ntf_server": known["ntf_servers"][0],
            "status": "ACTIVE",
            "mode": "instant",
            "registered": True,
            "action": "check",
        }
        [connection] = known["connections"]
        assert connection["connection"] == at_alice
        assert (connection["notifications"], connection["credentials"]) == (True, True)
        assert (connection["phase"], connection["action"], connection["given_up"]) == (
            "CREATED",
            "check",
            False,
        )
        assert connection["due_at"] > 0
        shown = (await alice("status")).out
        assert at_alice in shown
        assert "aaaa" not in shown + str(known)


async def test_mute_and_unmute_remove_and_bring_back_a_subscription(tmp_path: Path) -> None:
    """In the usual protocol: with direct notifications the SMP router holds them back."""
    async with two_agents(tmp_path) as (_, ntf, alice, bob):
        write_agent_file(alice.folder, replace(read_agent_file(alice.folder), direct=False))
        at_alice, at_bob = await connected_commands(alice, bob)
        await alice.activate(ntf)
        assert (await alice.ok("mute", at_alice[:8]))["notifications"] is False
        [muted] = (await alice.ok("status"))["connections"]
        assert (muted["notifications"], muted["phase"], muted["credentials"]) == (False, None, False)
        assert (await alice.ok("unmute", at_alice))["finished"] is True
        await bob.ok("send", at_bob, "again")
        woken = await alice.ok("wake", await alice.push(ntf))
        assert [message["text"] for message in woken["messages"]] == ["again"]


async def test_periodic_mode_is_told_to_the_router_before_the_command_ends(tmp_path: Path) -> None:
    async with two_agents(tmp_path) as (_, ntf, alice, _bob):
        await alice.ok("register", alice.device_text, "--mode", "periodic")
        await alice.ok("verify", await alice.push(ntf))
        async with opened_agent_store(alice.folder / "agent.db") as store:
            token = await store.token()
        assert token is not None
        assert token.token_id is not None
        record = await ntf.store.token(token.token_id)
        assert record is not None
        assert record.cron_minutes == 20


async def test_deleted_connections_and_tokens_are_gone(tmp_path: Path) -> None:
    async with two_agents(tmp_path) as (_, ntf, alice, bob):
        at_alice, at_bob = await connected_commands(alice, bob)
        await alice.activate(ntf)
        assert (await alice.ok("delete", at_alice, "--dry-run"))["deleted"] is False
        assert (await alice.ok("delete", at_alice))["deleted"] is True
        assert (await alice.ok("unregister"))["finished"] is True
        known = await alice.ok("status")
        assert (known["token"], known["tokens_to_delete"], known["connections"]) == (None, [], [])
        refused = await bob("send", at_bob, "too late", "--json")
        assert refused.code == 1
        assert "AUTH" in refused.json()["error"]


async def test_connect_waits_until_both_can_send(tmp_path: Path) -> None:
    async with two_agents(tmp_path) as (_, _ntf, alice, bob):
        waiting = await asyncio.create_subprocess_exec(
            *alice.process_words("connect", "--wait", "--json"), stdout=asyncio.subprocess.PIPE
        )
        assert waiting.stdout is not None
        invited = json.loads(await waiting.stdout.readline())
        joined = await bob.ok("connect", "--wait", invited["invitation"])
        assert joined["ready"] is True
        rest, _ = await waiting.communicate()
        assert json.loads(rest)["ready"] is True
        assert waiting.returncode == 0


async def test_a_message_that_ended_the_listening_does_not_come_again(tmp_path: Path) -> None:
    async with two_agents(tmp_path) as (_, _ntf, alice, bob):
        _, at_bob = await connected_commands(alice, bob)
        listening = await asyncio.create_subprocess_exec(
            *alice.process_words("listen", "--count", "1", "--json"), stdout=asyncio.subprocess.PIPE
        )
        assert listening.stdout is not None
        while json.loads(await listening.stdout.readline())["event"] != "listening":
            pass
        await bob.ok("send", at_bob, "only once")
        rest, _ = await listening.communicate()
        assert '"only once"' in rest.decode()
        woken = await alice.ok("wake", '{"notificationData":{"checkMessages":true}}')
        assert woken["messages"] == []
