"""The cost of each command in bytes on the wire and CPU of the NTF router, with the source of each figure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SMP_BLOCK: Final = 16_384
NTF_BLOCK: Final = 512
NOTIFICATIONS_PER_BLOCK: Final = 80
"""NMSG per block: smp.md 3.3 and 8.3, which agree with the reference's tests."""
PASS_SECONDS: Final = 1.5
"""Time between two rounds in which an SMP router sends notifications: `ntfDeliveryInterval` of the reference."""
CHECK_CPU: Final = 68 * 1.5
"""µs: an Ed25519 check (decision 0005), times the largest overhead that `make bench-wire` shows (README)."""
BYTES_PER_SUBSCRIPTION: Final = 109
"""Memory of an NTF router: figures in docs/ntf-router.md."""
BYTES_PER_ASSOCIATION: Final = 44
"""The same for a queue of direct notifications, which has no key: docs/ntf-store.md."""


class SimulatedCommand(StrEnum):
    SUBSCRIBE = "NSUB"
    SUBSCRIBE_ALL = "NSUBS or NSSUB"
    ASSOCIATE = "NSUB with service signature"
    FORWARD = "association packet"
    NEW_SUBSCRIPTION = "SNEW"
    CHECK_SUBSCRIPTION = "SCHK"
    CHECK_TOKEN = "TCHK"  # noqa: S105
    PUSH = "push"


@dataclass(frozen=True, slots=True)
class CommandCost:
    bytes: int
    """Bytes of command and answer, in full blocks shared with commands of the same kind."""
    cpu_us: float
    """CPU of the NTF router."""
    source: str


COSTS: Final = {
    SimulatedCommand.SUBSCRIBE: CommandCost(
        2 * SMP_BLOCK // 135,
        56,
        "135 in a block: smp.md 3.3; CPU: docs/ntf-router.md, a million queues subscribed again",
    ),
    SimulatedCommand.SUBSCRIBE_ALL: CommandCost(
        2 * SMP_BLOCK, CHECK_CPU, "one in a block; CPU as any signed command"
    ),
    SimulatedCommand.ASSOCIATE: CommandCost(
        2 * SMP_BLOCK // 88, 2 * 56, "65 bytes of signature more: 88 in a block; signed twice: smp.md 5.4"
    ),
    SimulatedCommand.FORWARD: CommandCost(
        SMP_BLOCK // 32,
        CHECK_CPU,
        "packets of 448 bytes, 32 in a block: docs/direct-notifications.md; CPU: one signature",
    ),
    SimulatedCommand.NEW_SUBSCRIPTION: CommandCost(
        2 * NTF_BLOCK, CHECK_CPU, "one in a block: ntf.md 1.6; CPU: one signature"
    ),
    SimulatedCommand.CHECK_SUBSCRIPTION: CommandCost(
        NTF_BLOCK // 4 + NTF_BLOCK // 7, CHECK_CPU, "4 and 7 in a block: ntf.md 1.6; CPU: one signature"
    ),
    SimulatedCommand.CHECK_TOKEN: CommandCost(2 * NTF_BLOCK, CHECK_CPU, "one in a block; CPU: one signature"),
    SimulatedCommand.PUSH: CommandCost(
        4_310, 91, "docs/ntf-router.md: pushes of 4.3 KB, with receiving the NMSG"
    ),
}
