"""`tocsin agent doctor` finds what was broken at real routers, and `--fix` brings notifications back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.agent_commands import AgentCommands, Ran, connected_commands
from tests.doubles.ntf_harness import NtfHarness, ntf_router
from tests.doubles.smp_harness import OK, SmpHarness, smp_router
from tocsin.agent.store.records import AgentToken, ReceiveQueue
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.crypto.keys import private_key_from_der
from tocsin.protocol.ntf.statuses import InvalidReason, SubscriptionState, TokenState, TokenStatus
from tocsin.protocol.smp.recipient_commands import DisableNotifications


@dataclass
class Patient:
    smp: SmpHarness
    ntf: NtfHarness
    alice: AgentCommands
    bob: AgentCommands
    at_alice: str
    at_bob: str
    smp_stack: AsyncExitStack
    ntf_stack: AsyncExitStack

    async def doctor(self, *options: str) -> Ran:
        return await self.alice("doctor", self.at_alice, "--json", *options, timeout="2")

    async def token(self) -> AgentToken:
        async with opened_agent_store(self.alice.folder / "agent.db") as store:
            token = await store.token()
        assert token is not None
        return token

    async def queue(self) -> ReceiveQueue:
        async with opened_agent_store(self.alice.folder / "agent.db") as store:
            [queue] = await store.primary_queues([self.at_alice])
        return queue

    async def set_subscription(self, status: SubscriptionState) -> None:
        queue = await self.queue()
        assert queue.notifier is not None
        changed = await self.ntf.store.set_statuses(queue.router, [(queue.notifier.notifier_id, status)])
        assert changed == 1

    async def is_notified(self) -> bool:
        """Whether a message of Bob leads to a push with which Alice gets it."""
        await self.bob.ok("send", self.at_bob, "can you hear me")
        woken = await self.alice.ok("wake", await self.alice.push(self.ntf))
        return [message["text"] for message in woken["messages"]] == ["can you hear me"]


@asynccontextmanager
async def patient(tmp_path: Path) -> AsyncIterator[Patient]:
    """Alice has an active token and a connection with Bob; all is well. Either router can be stopped."""
    async with AsyncExitStack() as ntf_stack, AsyncExitStack() as smp_stack:
        smp = await smp_stack.enter_async_context(smp_router())
        ntf = await ntf_stack.enter_async_context(ntf_router())
        alice, bob = AgentCommands(tmp_path / "alice", b"aaaa"), AgentCommands(tmp_path / "bob", b"bbbb")
        await alice.init(smp, ntf)
        await bob.init(smp, ntf)
        at_alice, at_bob = await connected_commands(alice, bob)
        await alice.ok("wake", '{"notificationData":{"checkMessages":true}}')
        await alice.activate(ntf)
        await ntf.subscribed_queues(1)
        yield Patient(smp, ntf, alice, bob, at_alice, at_bob, smp_stack, ntf_stack)


def by_subject(ran: Ran) -> dict[str, dict[str, Any]]:
    return {finding["subject"]: finding for finding in ran.json()["findings"]}


async def test_a_healthy_connection_is_called_healthy(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        ran = await ill.doctor()
        assert ran.code == 0, ran
        assert ran.json()["verdict"] == "ok", ran.out
        assert ran.json()["repairs"] == []
        shown = await ill.alice("doctor", ill.at_alice[:6])
        assert "ms to connect" in shown.out
        assert await ill.is_notified()


async def test_a_token_that_the_provider_refused_is_found_and_registered_again(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        token = await ill.token()
        assert token.token_id is not None
        invalid = TokenStatus(TokenState.INVALID, InvalidReason.UNREGISTERED)
        assert await ill.ntf.store.invalidate_token(token.token_id, token.device_token, invalid)
        found = await ill.doctor()
        assert found.code == 1
        assert by_subject(found)["token at the NTF router"]["verdict"] == "wrong"
        assert "removed from the device" in by_subject(found)["push provider"]["text"]
        fixed = await ill.doctor("--fix")
        assert "REGISTERED" in fixed.json()["repairs"][0]
        await ill.alice.ok("verify", await ill.alice.push(ill.ntf))
        assert (await ill.doctor()).code == 0
        assert await ill.is_notified()


async def test_a_token_that_the_router_forgot_is_found_and_another_registered(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        token = await ill.token()
        assert token.token_id is not None
        await ill.ntf.store.delete_token(token.token_id)
        found = await ill.doctor()
        assert found.code == 1
        assert "no longer knows the token" in by_subject(found)["token at the NTF router"]["text"]
        assert (await ill.token()).token_id == token.token_id  # nothing is changed without --fix
        fixed = (await ill.doctor("--fix")).json()
        assert [event["event"] for event in fixed["events"]] == ["token recreated"]
        await ill.alice.ok("verify", await ill.alice.push(ill.ntf))
        assert (await ill.doctor()).code == 0
        assert await ill.is_notified()


@pytest.mark.parametrize("status", [SubscriptionState.END, SubscriptionState.AUTH, SubscriptionState.DELETED])
async def test_a_dead_subscription_is_found_and_made_anew(tmp_path: Path, status: SubscriptionState) -> None:
    async with patient(tmp_path) as ill:
        await ill.set_subscription(status)
        found = await ill.doctor()
        assert found.code == 1
        assert f"({status})" in by_subject(found)["subscription"]["text"]
        fixed = await ill.doctor("--fix")
        assert len(fixed.json()["repairs"]) == 1
        await ill.ntf.subscribed_queues(2)
        after = await ill.doctor()
        assert after.json()["verdict"] == "ok", after.out
        assert await ill.is_notified()


async def test_a_queue_without_credentials_is_found_and_gets_new_ones(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        queue, recipient = await ill.queue(), await ill.smp.connect()
        key = private_key_from_der(queue.key)
        assert await recipient.ask(DisableNotifications(), queue.recipient_id, key) == OK
        found = await ill.doctor()
        assert found.code == 1
        assert "no notifier credentials" in by_subject(found)["notifier credentials"]["text"]
        await ill.doctor("--fix")
        await ill.ntf.subscribed_queues(2)
        assert (await ill.doctor()).json()["verdict"] == "ok"
        assert await ill.is_notified()


async def test_a_muted_connection_is_found_and_left_alone(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        await ill.alice.ok("mute", ill.at_alice)
        found = await ill.doctor("--fix")
        assert found.code == 1
        assert "switched off" in by_subject(found)["connection"]["text"]
        assert f"unmute {ill.at_alice}" in by_subject(found)["connection"]["next_step"]
        assert found.json()["repairs"] == []


async def test_a_router_that_is_down_is_found(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        await ill.smp_stack.aclose()
        found = by_subject(await ill.doctor())
        assert found["SMP router"]["verdict"] == "wrong"
        assert found["notifier credentials"]["verdict"] == "unknown"
        assert found["NTF router"]["verdict"] == "ok"
        await ill.ntf_stack.aclose()
        ran = await ill.doctor()
        assert ran.code == 1
        found = by_subject(ran)
        assert found["NTF router"]["verdict"] == "wrong"
        assert {found[name]["verdict"] for name in ("push provider", "subscription")} == {"unknown"}


async def test_a_connection_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    alice = AgentCommands(tmp_path / "alice")
    await alice.ok("init")
    ran = await alice("doctor", "nobody", "--json")
    assert ran.code == 1
    assert ran.json() == {
        "error": "there is no such connection",
        "next_step": "`tocsin agent status` lists the connections",
    }
    assert ran.error == "tocsin: there is no such connection; `tocsin agent status` lists the connections\n"
