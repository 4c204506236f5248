"""The passphrase of an agent that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.agent_harness import agent_settings, connected, running_agent
from tests.doubles.push_provider import RecordingProvider
from tests.doubles.smp_harness import smp_router
from tocsin.agent import Agent
from tocsin.agent.runtime.events import MessageArrived
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.errors import StoreError


async def test_agent_goes_on_when_its_passphrase_is_changed(tmp_path: Path) -> None:
    async with smp_router() as smp, running_agent(tmp_path / "bob", [smp], [], RecordingProvider()) as bob:
        async with running_agent(tmp_path / "alice", [smp], [], RecordingProvider()) as alice:
            _, at_bob = await connected(alice, bob)
            await alice.agent.change_passphrase("correct horse")
            await bob.agent.connections.send(at_bob, b"after the change")
            assert (await alice.event(MessageArrived)).body == b"after the change"
            await bob.agent.connections.send(at_bob, b"for the next start")
            assert isinstance(await alice.agent.next_event(), MessageArrived)
        with pytest.raises(StoreError, match="a passphrase is needed"):
            async with opened_agent_store(tmp_path / "alice"):
                pass
        async with (
            opened_agent_store(tmp_path / "alice", passphrase="correct horse") as store,
            Agent(store, agent_settings([smp], [])) as agent,
        ):
            [kept] = agent.waiting_events()
            assert isinstance(kept, MessageArrived)
            assert kept.body == b"for the next start"
