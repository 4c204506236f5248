"""What every part of an agent works with."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.agent.runtime.event_queue import EventQueue
from tocsin.agent.runtime.randomness import AgentClock
from tocsin.agent.runtime.router_clients import RouterClients
from tocsin.agent.runtime.settings import AgentSettings
from tocsin.agent.store.interface import AgentStore


@dataclass(frozen=True, slots=True)
class AgentParts:
    store: AgentStore
    clients: RouterClients
    settings: AgentSettings
    clock: AgentClock
    events: EventQueue
