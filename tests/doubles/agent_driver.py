"""An app with an agent, as a process of its own, to be killed.

python -m tests.doubles.agent_driver FILE SMP_ADDRESS NTF_ADDRESS COUNT

Receives messages of all connections, and makes so many new ones. Prints an object a line: when it begins, each
invitation and each message; a message is settled when it has been printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.doubles.agent_harness import agent_settings
from tocsin.agent import Agent
from tocsin.agent.runtime.events import AgentTrouble, MessageArrived
from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.protocol.addresses import RouterAddress


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def connect(agent: Agent, count: int) -> None:
    for _ in range(count):
        invitation = await agent.connections.create()
        say(invitation=invitation.text)


async def read(agent: Agent) -> None:
    async for event in agent.events():
        if isinstance(event, MessageArrived):
            say(message=event.body.decode())
        elif isinstance(event, AgentTrouble):
            say(trouble=repr(event))


async def main(path: str, smp: str, ntf: str, count: str) -> None:
    settings = agent_settings([RouterAddress.parse(smp).location], [RouterAddress.parse(ntf).location])
    async with opened_agent_store(Path(path)) as store, Agent(store, settings) as agent:
        say(begun=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(read(agent))
            await agent.connections.subscribe()
            group.create_task(connect(agent, int(count)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
