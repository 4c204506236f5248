"""The device's side of notifications: `from tocsin.agent import Agent`."""

from tocsin.agent.agent import Agent
from tocsin.agent.connections import Invitation
from tocsin.agent.decisions.worker_answers import CheckIntervals
from tocsin.agent.settings import AgentSettings
from tocsin.agent.wake import Fetched, ToFetch, TokenVerified, Unreadable, UnreadableItem, WakeResult, Woken

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
