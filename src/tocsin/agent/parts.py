"""What every part of an agent works with."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.agent.event_queue import EventQueue
from tocsin.agent.router_clients import RouterClients
from tocsin.agent.settings import AgentSettings
from tocsin.agent.surroundings import AgentClock
from tocsin.stores.agent_store import AgentStore


@dataclass(frozen=True, slots=True)
class AgentParts:
    store: AgentStore
    clients: RouterClients
    settings: AgentSettings
    clock: AgentClock
    events: EventQueue
