"""Settings of an agent. The defaults are the reference's (ntf.md 6.2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tocsin.clients import Backoff, ClientSettings
from tocsin.protocol.addresses import RouterAddress


@dataclass(frozen=True, slots=True)
class CheckIntervals:
    """Seconds between checks of a subscription."""

    first: float = 86_400.0
    then: float = 3 * 86_400.0


@dataclass(frozen=True, slots=True)
class AgentSettings:
    smp_routers: tuple[RouterAddress, ...] = ()
    """The agent creates new queues at one of these, chosen at random."""
    ntf_routers: tuple[RouterAddress, ...] = ()
    """The agent registers a new token at one of these, chosen at random."""
    checks: CheckIntervals = field(default_factory=CheckIntervals)
    """When subscriptions are checked. Minutes are fine if they must heal quickly."""
    direct: bool = True
    """Use direct notifications with routers that support them (docs/direct-notifications.md)."""
    pending_packets: Backoff = field(default_factory=lambda: Backoff(maximum=3600.0))
    """How often the agent asks SMP routers about packets that have not reached the NTF router."""
    pending_limit: float = 600.0
    """Seconds after which it subscribes in the old way: an SMP router cannot reach every NTF router."""
    priority_delay: float = 5.0
    """Maximum seconds between a change of priorities and NPRI, so that changes are sent together."""
    batch_size: int = 150
    """Subscriptions that a worker handles at a time."""
    command_queue: int = 128
    """Commands that wait for the supervisor. When the queue is full, callers wait."""
    periodic_minutes: int = 20
    """How often the NTF router wakes the device to check for messages, in either mode."""
    retries: Backoff = field(default_factory=lambda: Backoff(maximum=180.0))
    remember_failure: float = 3.0
    """Seconds during which the agent does not dial a router again after a failure."""
    max_connections: int = 64
    """Connections to all routers together."""
    fetch_at_once: int = 4
    """Queues that a wake fetches messages from at the same time."""
    unsettled_messages: int = 1024
    """Limit of messages that the app has not settled. Further messages stay at their routers."""
    forget_deletions_after: float = 21 * 86_400.0
    """Seconds after which the agent stops trying to delete a former token at its router."""
    clients: ClientSettings = field(default_factory=ClientSettings)

    @property
    def dialling(self) -> ClientSettings:
        """`clients`, offering direct notifications if they are on."""
        if self.direct == self.clients.dial.direct:
            return self.clients
        return replace(self.clients, dial=replace(self.clients.dial, direct=self.direct))
