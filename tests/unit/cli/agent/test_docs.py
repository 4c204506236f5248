"""docs/agent.md: its programs run, and it names every command and every field of the JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.agent_commands import AgentCommands, connected_commands
from tests.doubles.agent_harness import INSTANT, NtfPlace, connected, ntf_address, running_agent, smp_address
from tests.doubles.ntf_harness import ntf_router
from tests.doubles.smp_harness import smp_router
from tests.doubles.web_push_bodies import endpoint_token, next_body, running_with_web_push
from tocsin.agent import Agent
from tocsin.agent.store.interface import AgentStore
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.cli import agent
from tocsin.cli.agent.output import EVENT_NAMES
from tocsin.wire.base64url import encode_base64url

DOCS = Path(__file__).resolve().parents[4] / "docs" / "agent.md"
TEXT = DOCS.read_text(encoding="utf-8")
PROGRAM, ON_PUSH, ON_WEB_PUSH = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


async def test_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    async with smp_router() as smp, ntf_router() as ntf:
        program = PROGRAM.replace("smp://<fingerprint>@smp.example.org", str(smp_address(smp)))
        program = program.replace("ntf://<fingerprint>@ntf.example.org", str(ntf_address(ntf)))
        await asyncio.to_thread(exec, compile(program, "docs/agent.md", "exec"), {})
    assert capsys.readouterr().out == "hello\n"


async def test_the_handler_of_pushes_verifies_and_fetches(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(ON_PUSH, "docs/agent.md", "exec"), namespace)  # noqa: S102 - the example is what is tested
    on_push: Callable[[Agent, bytes], Awaitable[list[bytes]]] = namespace["on_push"]
    async with (
        smp_router() as smp,
        ntf_router() as ntf,
        running_agent(tmp_path / "alice", [smp], [ntf], ntf.provider) as alice,
        running_agent(tmp_path / "bob", [smp], [ntf], ntf.provider) as bob,
    ):
        _, at_bob = await connected(alice, bob)
        await alice.agent.tokens.register(alice.device, INSTANT)
        assert await on_push(alice.agent, await alice.push()) == []
        await alice.subscribed(1)
        await ntf.subscribed_queues(1)
        await alice.agent.connections.unsubscribe()
        await bob.agent.connections.send(at_bob, b"by push")
        assert await on_push(alice.agent, await alice.push()) == [b"by push"]


async def test_the_handlers_of_an_endpoint_register_verify_and_fetch(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(ON_WEB_PUSH, "docs/agent.md", "exec"), namespace)  # noqa: S102 - the example is what is tested
    endpoint, place = "https://push.example.net/up/alice", NtfPlace()
    async with (
        smp_router() as smp,
        running_with_web_push(place) as ntf,
        running_agent(tmp_path / "alice", [smp], [ntf], place.provider) as alice,
        running_agent(tmp_path / "bob", [smp], [ntf], place.provider) as bob,
    ):
        _, at_bob = await connected(alice, bob)
        await namespace["on_new_endpoint"](alice.agent, endpoint)
        token = await endpoint_token(alice.store, endpoint)
        assert await namespace["on_message"](alice.agent, await next_body(place.provider, token)) == 0
        await alice.subscribed(1)
        await ntf.subscribed_queues(1)
        await alice.agent.connections.unsubscribe()
        await bob.agent.connections.send(at_bob, b"by Web Push")
        assert await namespace["on_message"](alice.agent, await next_body(place.provider, token)) == 1


@pytest.mark.parametrize("command", [module.NAME for module in agent.SUBCOMMANDS])
def test_every_command_is_in_the_tables(command: str) -> None:
    assert len(re.findall(rf"^\|.*`{command}\b", TEXT, re.MULTILINE)) >= 2, "one of what it does, one of JSON"


def test_every_event_is_in_the_table() -> None:
    for name in EVENT_NAMES.values():
        assert f"`{name}`" in TEXT


async def test_every_field_of_the_json_is_documented_and_none_is_secret(tmp_path: Path) -> None:
    async with smp_router() as smp, ntf_router() as ntf:
        alice, bob = AgentCommands(tmp_path / "alice"), AgentCommands(tmp_path / "bob", b"bbbb")
        await bob.init(smp, ntf)
        servers = ["--smp-server", str(smp_address(smp)), "--ntf-server", str(ntf_address(ntf))]
        said = [await alice.ok("init", *servers), await alice.ok("register", alice.device_text)]
        said.append(await alice.ok("verify", await alice.push(ntf)))
        at_alice, at_bob = await connected_commands(alice, bob)
        said += [
            await alice.ok("connect"),
            await bob.ok("connect", (await alice.ok("connect"))["invitation"]),
        ]
        said.append(await bob.ok("send", at_bob, "hello"))
        said.append(await alice.ok("wake", await alice.push(ntf)))
        said += (await bob("listen", "--for", "0.01", "--json")).lines()
        for words in (("mute", at_alice), ("unmute", at_alice), ("status",), ("delete", at_alice)):
            said.append(await alice.ok(*words))
        said += (await bob("doctor", at_bob, "--json")).lines()
        said += (await bob("doctor", "nobody", "--json")).lines()
        async with opened_agent_store(alice.folder / "agent.db") as store:
            secrets = await _secrets(store, alice)
        said.append(await alice.ok("passphrase", "--remove", "--dry-run"))
        said.append(await alice.ok("unregister"))
    missing = {key for each in said for key in _keys(each) if f"`{key}`" not in TEXT}
    assert not missing
    shown = json.dumps(said)
    assert not [secret for secret in secrets if secret in shown]


async def _secrets(store: AgentStore, alice: AgentCommands) -> list[str]:
    token = await store.token()
    assert token is not None
    queues = await store.primary_queues([each.connection_id for each in await store.connections()])
    kept = [token.key, token.secret, token.token_id]
    for queue in queues:
        assert queue.notifier is not None
        kept += [queue.key, queue.secret, queue.recipient_id, queue.peer_key]
        kept += [queue.notifier.key, queue.notifier.secret, queue.notifier.notifier_id]
    assert len(kept) > 10
    assert None not in kept
    return [alice.device_token.decode(), *(encode_base64url(each) for each in kept if each is not None)]


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _keys(each)
    elif isinstance(value, list):
        for each in value:
            yield from _keys(each)
