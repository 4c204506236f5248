"""Two agents, an SMP router and an NTF router over TLS: from registration to the fetched message."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.agent_harness import INSTANT, connected, running_agent
from tests.doubles.ntf_harness import ntf_router
from tests.doubles.smp_harness import smp_router
from tocsin.agent import Woken
from tocsin.agent.runtime.events import MessageArrived


async def test_message_wakes_the_device_and_is_fetched(tmp_path: Path) -> None:
    async with (
        smp_router() as smp,
        ntf_router() as ntf,
        running_agent(tmp_path / "alice", [smp], [ntf], ntf.provider) as alice,
        running_agent(tmp_path / "bob", [smp], [ntf], ntf.provider) as bob,
    ):
        at_alice, at_bob = await connected(alice, bob)
        await alice.activate(INSTANT)
        await alice.subscribed(1)
        await ntf.subscribed_queues(1)
        await bob.agent.connections.send(at_bob, b"to the app")
        arrived = await alice.event(MessageArrived)
        assert (arrived.connection_id, arrived.body) == (at_alice, b"to the app")
        await alice.push()

        await alice.agent.connections.unsubscribe()
        await bob.agent.connections.send(at_bob, b"by push")
        woken = await alice.woken()
        assert isinstance(woken, Woken)
        [item] = woken.to_fetch
        assert item.connection_id == at_alice
        assert item.meta is not None
        assert woken.unreadable == ()
        [fetched] = await alice.agent.fetch(woken.to_fetch)
        assert fetched.failure is None
        [message] = fetched.messages
        assert isinstance(message, MessageArrived)
        assert message.body == b"by push"
        assert message.message_id == item.meta.message_id
        alice.no_trouble()
        bob.no_trouble()
