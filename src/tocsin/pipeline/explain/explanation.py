"""Decides where a notification stopped, what that means and what to do, for every stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from tocsin.events.delivery_events import ENDS, Stage
from tocsin.events.pseudonyms import PERIOD_SECONDS
from tocsin.pipeline.explain.chains import Chain, StageStep, StatusChange
from tocsin.pipeline.report.failure_reasons import advice

SECOND: Final = 1_000_000
MIDNIGHT_SECONDS: Final = 300
"""This close to the end of a period, the next router may have used the next period's key."""


class DeliveryVerdict(StrEnum):
    ARRIVED = "arrived"
    """The provider has it, or the device: nothing more is known."""
    REPLACED = "replaced"
    WAITING = "waiting"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Explanation:
    stopped_at: Stage
    verdict: DeliveryVerdict
    means: str
    to_do: str


def explanation(
    chain: Chain, *, newer: Chain | None = None, changes: Sequence[StatusChange] = ()
) -> Explanation:
    """`newer`: the next notification of the same queue, if any. `changes`: those of its subscription and token.

    Raises ValueError for a chain without steps.
    """
    if not chain.steps:
        raise ValueError("a chain without steps has no explanation")
    ended = [step.stage for step in chain.steps if step.stage in ENDS]
    if len(set(ended)) > 1:
        return _two_ends(ended)
    last = _last(chain)
    found = _explained(chain, last, newer, changes)
    if ended and chain.first(Stage.RECEIVED) is None:
        note = "No event says that the NTF router received it, so the accounting counts it as a difference."
        return Explanation(found.stopped_at, found.verdict, f"{found.means} {note}", found.to_do)
    return found


def _last(chain: Chain) -> StageStep:
    """The step that decides: the device's, then the NTF router's, then the SMP router's. Ends come before steps."""
    for stages in (
        (Stage.FETCHED,),
        (Stage.WOKEN,),
        tuple(ENDS),
        (Stage.ATTEMPTED,),
        (Stage.BATCHED,),
        (Stage.RECEIVED,),
        (Stage.UNKNOWN_QUEUE,),
        (Stage.DROPPED,),
        (Stage.EXPIRED,),
        (Stage.SENT,),
    ):
        if step := chain.first(*stages):
            return step
    return chain.steps[-1]


def _explained(
    chain: Chain, last: StageStep, newer: Chain | None, changes: Sequence[StatusChange]
) -> Explanation:
    match last.stage:
        case Stage.SUPERSEDED:
            return _superseded(newer)
        case Stage.FAILED:
            return _failed(last, changes)
        case Stage.ATTEMPTED:
            return _attempted(chain)
        case Stage.SENT:
            return _sent(chain, last, changes)
    said = SAID.get(last.stage)
    if said is None:
        raise ValueError(f"{last.stage} is not a stage of a notification")
    then = _status_then(last, changes) if said.by_subscription else ""
    return Explanation(last.stage, said.verdict, f"{said.means}{then}", said.to_do)


@dataclass(frozen=True, slots=True)
class _Said:
    verdict: DeliveryVerdict
    means: str
    to_do: str
    by_subscription: bool = False
    """The state of the NTF router's subscription at that time helps to explain it."""


NOTHING: Final = "Nothing: everything worked."
_SUBSCRIBE: Final = (
    "Check that the NTF router is connected to this SMP host. If it is, run `tocsin pipeline reconcile`."
)

SAID: Final = {
    Stage.ENQUEUED: _Said(
        DeliveryVerdict.WAITING,
        "The SMP router has it but has not sent it: no NTF router is subscribed to its queue.",
        _SUBSCRIBE,
        by_subscription=True,
    ),
    Stage.EXPIRED: _Said(
        DeliveryVerdict.LOST,
        "The SMP router removed it before it was sent: no NTF router subscribed in time.",
        _SUBSCRIBE,
        by_subscription=True,
    ),
    Stage.DROPPED: _Said(
        DeliveryVerdict.LOST,
        "The SMP router removed it before it was sent: its queue or notifier was deleted, or too many were waiting.",
        "Check that the NTF router is subscribed: without a subscriber, only some notifications are kept.",
    ),
    Stage.UNKNOWN_QUEUE: _Said(
        DeliveryVerdict.LOST,
        "The NTF router received it, but has no subscription for its queue.",
        "Compare both routers with `tocsin pipeline reconcile`, then run `tocsin ntf repair`.",
        by_subscription=True,
    ),
    Stage.RECEIVED: _Said(
        DeliveryVerdict.WAITING,
        "The NTF router received it but has not tried to push it.",
        "If it is older than a few seconds, check that the router is running and reaches the provider. Use "
        "`tocsin pipeline replay` to deliver old notifications without an outcome.",
    ),
    Stage.BATCHED: _Said(
        DeliveryVerdict.WAITING,
        "It was handed over to the delivery engine but has not been tried.",
        "Check that the delivery job is running: `tocsin pipeline deliver` continues where it stopped.",
    ),
    Stage.SHED: _Said(
        DeliveryVerdict.LOST,
        "The NTF router was overloaded and dropped it on purpose.",
        "Give the router more CPU, or add an instance. The report shows the hours in which it sheds.",
    ),
    Stage.ACCEPTED: _Said(
        DeliveryVerdict.ARRIVED,
        "The provider accepted the push. What happens next only the device knows, which reports it only if the user "
        "agreed.",
        "If the user saw nothing: notifications may be off for the app, or the device may be off or saving power. "
        "The provider keeps only the newest push for a device that is off.",
    ),
    Stage.WOKEN: _Said(
        DeliveryVerdict.ARRIVED,
        "The device woke for it, but did not report that it fetched the message.",
        "Check that the device reaches the SMP router from its network, for example with `tocsin agent doctor`.",
    ),
    Stage.FETCHED: _Said(DeliveryVerdict.ARRIVED, "The device woke and fetched the message.", NOTHING),
}
"""Stages that explain themselves. Others need the rest of the path."""


def _attempted(chain: Chain) -> Explanation:
    tried = "once" if chain.attempts == 1 else f"{chain.attempts} times"
    means = f"The NTF router tried to push it {tried} and has no final answer from the provider yet."
    to_do = "Wait. If this does not change, look for the provider's answers in the router's log."
    return Explanation(Stage.ATTEMPTED, DeliveryVerdict.WAITING, means, to_do)


def _superseded(newer: Chain | None) -> Explanation:
    means = "A newer notification of the same queue replaced it before it was pushed."
    stage = Stage.SUPERSEDED
    if newer is None:
        unknown = "The newer one is not in the tables."
        return Explanation(
            stage, DeliveryVerdict.REPLACED, f"{means} {unknown}", "Ingest newer events, and ask again."
        )
    means += f" The newer one is that of {moment_text(newer.began_at)}"
    if newer.first(stage):
        return Explanation(stage, DeliveryVerdict.REPLACED, f"{means}, which was replaced as well.", NOTHING)
    then = explanation(newer)
    if then.verdict is DeliveryVerdict.ARRIVED:
        return Explanation(stage, DeliveryVerdict.REPLACED, f"{means}, which was accepted.", NOTHING)
    # The device learns of both when the newer one arrives.
    return Explanation(
        stage, then.verdict, f"{means}, which stopped at “{then.stopped_at}”: {then.means}", then.to_do
    )


def _failed(last: StageStep, changes: Sequence[StatusChange]) -> Explanation:
    known = advice(last.reason)
    named = (
        f"The NTF router gave up with the reason “{last.reason}”."
        if last.reason
        else "The NTF router gave up without recording a reason."
    )
    means = f"{named} {known.means}" if last.reason else named
    token = _latest(changes, Stage.TOKEN_CHANGED, last.at + SECOND)
    if token and token.after.startswith(("INVALID", "EXPIRED")):
        means += f" The token became {token.after} at {moment_text(token.at)}."
    return Explanation(
        Stage.FAILED,
        DeliveryVerdict.LOST,
        means,
        known.to_do if last.reason else "Look at the router's log.",
    )


def _sent(chain: Chain, last: StageStep, changes: Sequence[StatusChange]) -> Explanation:
    means = "The SMP router sent it, but no event says that an NTF router received it."
    ends_at = (int(chain.period.partition("-")[0]) + 1) * PERIOD_SECONDS
    if ends_at - last.at / SECOND < MIDNIGHT_SECONDS:
        return Explanation(
            Stage.SENT,
            DeliveryVerdict.WAITING,
            f"{means} It was sent just before midnight UTC, so later stages may have the next day's pseudonyms.",
            "Ask again for the next day, by ids instead of pseudonyms.",
        )
    return Explanation(
        Stage.SENT,
        DeliveryVerdict.LOST,
        f"{means}{_status_then(last, changes)}",
        "Check whether the connection was lost at that time. The NTF router may also belong to somebody else, or write "
        "no events. If it is yours, check that its segments are ingested and that it uses the same pseudonym keys.",
    )


def _two_ends(ended: Sequence[Stage]) -> Explanation:
    names = " and ".join(sorted(set(ended)))
    arrived = Stage.ACCEPTED in ended
    return Explanation(
        ended[0],
        DeliveryVerdict.ARRIVED if arrived else DeliveryVerdict.LOST,
        f"It has two ends, {names}, which the accounting counts as a difference. This is a bug.",
        "Report the bug, with the events of this notification.",
    )


def _status_then(last: StageStep, changes: Sequence[StatusChange]) -> str:
    known = _latest(changes, Stage.SUBSCRIPTION_CHANGED, last.at)
    if known is None:
        return ""
    return f" The NTF router's subscription was {known.after or 'deleted'} since {moment_text(known.at)}."


def _latest(changes: Sequence[StatusChange], of: Stage, until: int) -> StatusChange | None:
    return max(
        (each for each in changes if each.of is of and each.at <= until),
        key=lambda each: each.at,
        default=None,
    )


def moment_text(at: int) -> str:
    return f"{datetime.fromtimestamp(at / SECOND, UTC):%H:%M:%S.%f}"[:-3] + " UTC"
