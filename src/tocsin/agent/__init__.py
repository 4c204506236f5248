"""The device's side of notifications: `from tocsin.agent import Agent`.

`agent.py` assembles an agent. Each concern has a folder: `runtime` (what all the others use), `store`, `token`,
`subscriptions`, `connections`, `wake` and `diagnosis`. Commands for people belong to `cli/agent`.
"""

from tocsin.agent.agent import Agent
from tocsin.agent.connections.connections import Invitation
from tocsin.agent.runtime.events import AgentEvent, ConnectionReady, MessageArrived, MessageUnreadable
from tocsin.agent.runtime.settings import AgentSettings, CheckIntervals
from tocsin.agent.store.records import NotificationMode
from tocsin.agent.wake.notified import (
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
    "AgentEvent",
    "AgentSettings",
    "CheckIntervals",
    "ConnectionReady",
    "Fetched",
    "Invitation",
    "MessageArrived",
    "MessageUnreadable",
    "NotificationMode",
    "ToFetch",
    "TokenVerified",
    "Unreadable",
    "UnreadableItem",
    "WakeResult",
    "Woken",
]
