"""The device's side of notifications: `from tocsin.agent import Agent`."""

from tocsin.agent.agent import Agent
from tocsin.agent.connections.connections import Invitation
from tocsin.agent.runtime.settings import AgentSettings
from tocsin.agent.subscriptions.answers import CheckIntervals
from tocsin.agent.wake.waking import (
    Fetched,
    ToFetch,
    TokenVerified,
    Unreadable,
    UnreadableItem,
    WakeResult,
    Woken,
)

__all__ = [
    "Agent",
    "AgentSettings",
    "CheckIntervals",
    "Fetched",
    "Invitation",
    "ToFetch",
    "TokenVerified",
    "Unreadable",
    "UnreadableItem",
    "WakeResult",
    "Woken",
]
