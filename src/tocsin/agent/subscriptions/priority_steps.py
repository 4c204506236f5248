"""How a connection's minimum priority is told to its SMP router."""

from __future__ import annotations

from enum import Enum

from tocsin.protocol.direct.priorities import MinimumPriority


class PriorityStep(Enum):
    NOTHING = "nothing: the router has it"
    SET = "NPRI"
    DELETE = "NDEL"
    RENEW = "a new notifier, whose minimum is that of all messages"
    WAIT = "nothing: all messages notify until the router knows priorities"


def priority_step(present: MinimumPriority, wanted: MinimumPriority, *, direct_session: bool) -> PriorityStep:
    if present is wanted:
        return PriorityStep.NOTHING
    if direct_session:
        return PriorityStep.SET
    if wanted is MinimumPriority.OFF:
        return PriorityStep.DELETE
    # Where the router knew priorities before, it may still keep to the one it has.
    return PriorityStep.WAIT if present is MinimumPriority.ALL else PriorityStep.RENEW
