"""`tocsin agent …`: a message is shown by one command or another, whatever the one before did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.agent_commands import AgentCommands, Ran, connected_commands
from tests.doubles.agent_samples import SMP, receive_queue
from tests.doubles.ntf_harness import ntf_router
from tests.doubles.smp_harness import smp_router
from tocsin.agent.store.records import AgentConnection, KeptMessage
from tocsin.agent.store.sqlite.store import opened_agent_store


@pytest.fixture
async def alice(tmp_path: Path) -> AgentCommands:
    """With a message that was received and not shown, as after a kill."""
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init")
    async with opened_agent_store(alice.folder / "agent.db") as store:
        nobody = replace(SMP, hosts=("127.0.0.1",), port="1")
        await store.add_connection(AgentConnection("a"), receive_queue("a", router=nobody), None)
        await store.keep_message(KeptMessage("a", 1, b"id", 7, b"hello"))
    return alice


def texts(ran: Ran) -> list[str]:
    return [line["text"] for line in ran.lines() if line.get("event") == "message"]


async def test_message_that_was_not_shown_is_shown_once(alice: AgentCommands) -> None:
    assert texts(await alice("listen", "--count", "1", "--json")) == ["hello"]
    assert texts(await alice("listen", "--for", "0.01", "--json")) == []


async def test_command_that_fails_leaves_it_to_the_next(alice: AgentCommands) -> None:
    assert (await alice("send", "nobody", "text", "--json")).code == 1
    muted = await alice.ok("mute", "a")
    assert [event["text"] for event in muted["events"] if event["event"] == "message"] == ["hello"]
    assert texts(await alice("listen", "--for", "0.01", "--json")) == []


async def test_wake_shows_what_it_fetched_and_settles_it(tmp_path: Path) -> None:
    async with smp_router() as smp, ntf_router() as ntf:
        alice, bob = AgentCommands(tmp_path / "alice"), AgentCommands(tmp_path / "bob", b"bbbb")
        await alice.init(smp, ntf)
        await bob.init(smp, ntf)
        await alice.activate(ntf)
        at_alice, at_bob = await connected_commands(alice, bob)
        await alice.ok("wake", await alice.push(ntf))  # Bob's introduction
        await bob.ok("send", at_bob, "by push")
        async with opened_agent_store(alice.folder / "agent.db") as store:
            await store.keep_message(KeptMessage(at_alice, 1, b"id", 7, b"not shown before"))
        woken = await alice.ok("wake", await alice.push(ntf))
        assert [message["text"] for message in woken["messages"]] == ["by push", "not shown before"]
        assert texts(await alice("listen", "--for", "0.01", "--json")) == []
