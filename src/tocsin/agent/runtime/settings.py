"""How an agent behaves. The defaults are the reference's (ntf.md 6.2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tocsin.agent.subscriptions.answers import CheckIntervals
from tocsin.clients import Backoff, ClientSettings
from tocsin.protocol.addresses import RouterAddress


@dataclass(frozen=True, slots=True)
class AgentSettings:
    smp_routers: tuple[RouterAddress, ...] = ()
    """New queues are created at one of these, chosen at random."""
    ntf_routers: tuple[RouterAddress, ...] = ()
    """A new token is registered at one of these, chosen at random."""
    checks: CheckIntervals = field(default_factory=CheckIntervals)
    """When subscriptions are checked; down to minutes where healing must be quick."""
    direct: bool = False
    """Use direct notifications with routers that know them (docs/direct-notifications.md)."""
    pending_packets: Backoff = field(default_factory=lambda: Backoff(maximum=3600.0))
    """How often SMP routers are asked what became of packets that wait there."""
    priority_delay: float = 5.0
    """Up to so many seconds after a change of priorities the SMP router is told, together with others."""
    batch_size: int = 150
    """Subscriptions that a worker takes at a time."""
    command_queue: int = 128
    """Commands that wait for the supervisor; more wait for room."""
    periodic_minutes: int = 20
    """How often the NTF router wakes the device to look, whatever the mode."""
    retries: Backoff = field(default_factory=lambda: Backoff(maximum=180.0))
    remember_failure: float = 3.0
    """Seconds in which a router that could not be reached is not dialled again."""
    max_connections: int = 64
    """To all routers together."""
    fetch_at_once: int = 4
    """Connections over which a wake fetches messages at a time."""
    unsettled_messages: int = 1024
    """Messages that the app has not settled; beyond that no more are acknowledged: they stay at their routers."""
    forget_deletions_after: float = 21 * 86_400.0
    """Seconds after which a token that could not be deleted at its router is forgotten."""
    clients: ClientSettings = field(default_factory=ClientSettings)

    @property
    def dialling(self) -> ClientSettings:
        """`clients`, which offer direct notifications if they are on."""
        if self.direct == self.clients.dial.direct:
            return self.clients
        return replace(self.clients, dial=replace(self.clients.dial, direct=self.direct))
