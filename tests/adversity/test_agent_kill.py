"""kill -9 of a device's process while it makes connections, sets up their notifications and receives messages.

Each life of Alice's process makes some connections, which Bob joins and writes to, whether she is alive or not, and
ends with a kill at a random moment. After the last life everything is compared: every message whose SEND was answered
has been handed out, none twice but the one that was in the app's hands when it was killed; every connection has one
subscription at the NTF router, there are no others, and a message wakes the device.

TOCSIN_AGENT_KILLS sets how many lives there are, TOCSIN_KILL_SEED what is decided by chance in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.agent_harness import RunningAgent, ntf_address, smp_address
from tests.doubles.agent_world import PATIENCE, AgentWorld, notified
from tocsin.agent.runtime.events import MessageArrived
from tocsin.errors import TocsinError

KILLS: Final = int(os.environ.get("TOCSIN_AGENT_KILLS", "6"))
SEED: Final = os.environ.get("TOCSIN_KILL_SEED", "tocsin")
CONNECTIONS_EACH: Final = 3
LONGEST: Final = 0.5
"""Seconds of a life, from its first sign on."""
PAUSE: Final = 0.004
"""Seconds between Bob's messages."""


@dataclass
class Correspondence:
    """What Bob wrote, and what Alice's app got of it."""

    bob: RunningAgent
    joined: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    shown: Counter[str] = field(default_factory=Counter)
    in_hand: set[str] = field(default_factory=set)
    """Those that were shown last in a life."""
    _number: int = 0

    async def join(self, invitation: str) -> None:
        self.joined.append(await self.bob.agent.connections.join(invitation))

    async def write(self) -> None:
        """For ever, to one connection after the other."""
        while True:
            await asyncio.sleep(PAUSE)
            for name in list(self.joined):
                await self.write_to(name)

    async def write_to(self, name: str) -> str | None:
        self._number += 1
        body = f"{self._number}"
        with contextlib.suppress(TocsinError):  # not joined yet, or its queue is full
            await self.bob.agent.connections.send(name, body.encode())
            self.answered.add(body)
            return body
        return None


class Device:
    """Alice's process."""

    def __init__(self, world: AgentWorld, letters: Correspondence) -> None:
        self._letters = letters
        self._last: str | None = None
        """The message that it showed last."""
        self._words = [
            *(sys.executable, "-m", "tests.doubles.agent_driver", str(world.file("alice"))),
            *(str(smp_address(world.smp[0].location)), str(ntf_address(world.ntf[0].location))),
            str(CONNECTIONS_EACH),
        ]

    async def live(self, seconds: float) -> None:
        """From the first sign of life on; then it is killed."""
        process = await asyncio.create_subprocess_exec(
            *self._words, stdout=PIPE, cwd=Path(__file__).parents[2]
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(PATIENCE):
                assert "begun" in json.loads(await process.stdout.readline())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._heard(process)
        finally:
            process.kill()
        await self._heard(process)
        await process.wait()
        if self._last is not None:
            self._letters.in_hand.add(self._last)

    async def _heard(self, process: Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if not line.endswith(b"\n"):
                break  # cut by the kill
            said = json.loads(line)
            assert "trouble" not in said, said
            if "invitation" in said:
                await self._letters.join(said["invitation"])
            elif "message" in said:
                self._last = said["message"]
                self._letters.shown[said["message"]] += 1


@pytest.mark.timeout(60 + 5 * KILLS)
@pytest.mark.parametrize("database_server", ["postgres"], indirect=True)
async def test_killed_device_loses_no_message_and_no_subscription(world: AgentWorld) -> None:
    chance = random.Random(SEED)
    await world.start()
    async with world.bob() as bob:
        async with world.alice() as alice:
            await alice.activate()
        letters = Correspondence(bob)
        device = Device(world, letters)
        writing = asyncio.create_task(letters.write())
        for _ in range(KILLS):
            await device.live(chance.uniform(0, LONGEST))
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing
        async with world.alice() as alice:
            await all_is_there(world, alice, letters)


async def all_is_there(world: AgentWorld, alice: RunningAgent, letters: Correspondence) -> None:
    assert letters.joined, "otherwise nothing was tried"
    connections = await alice.store.connections()
    await alice.subscribed(len(connections))
    await alice.at_rest()
    await world.ntf[0].until_all_active(len(connections))
    assert await alice.agent.connections.subscribe() == {}
    while not letters.shown.keys() >= letters.answered:
        letters.shown[(await alice.event(MessageArrived)).body.decode()] += 1
    twice = {body for body, times in letters.shown.items() if times > 1}
    assert twice <= letters.in_hand
    body = None
    while body is None:
        body = await letters.write_to(letters.joined[-1])
    arrived = await alice.event(MessageArrived, lambda event: event.body.decode() == body)
    await notified(world, alice, [arrived.connection_id])
