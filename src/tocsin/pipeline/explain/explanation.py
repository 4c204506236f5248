"""Where a notification stopped, what that means and what to do: pure, for every stage there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from tocsin.observability.delivery_events import ENDS, Stage
from tocsin.observability.pseudonyms import PERIOD_SECONDS
from tocsin.pipeline.explain.chains import Chain, StageStep, StatusChange
from tocsin.pipeline.report.failure_reasons import advice

SECOND: Final = 1_000_000
MIDNIGHT_SECONDS: Final = 300
"""So close to the end of a period, the next router may have used the next period's key."""


class DeliveryVerdict(StrEnum):
    ARRIVED = "arrived"
    """As far as anybody knows: the provider has it, or the device."""
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
    """`newer`: the next one of the same queue, if there is one. `changes`: of its subscription and token.

    Raises ValueError for a chain without steps.
    """
    if not chain.steps:
        raise ValueError("a notification that nobody wrote anything about")
    ended = [step.stage for step in chain.steps if step.stage in ENDS]
    if len(set(ended)) > 1:
        return _two_ends(chain, ended)
    last = _last(chain)
    found = _explained(chain, last, newer, changes)
    if ended and chain.first(Stage.RECEIVED) is None:
        note = "Its reception was never written down, so the accounting counts it as a difference."
        return Explanation(found.stopped_at, found.verdict, f"{found.means} {note}", found.to_do)
    return found


def _last(chain: Chain) -> StageStep:
    """What counts: the device's word before the NTF router's, and that before the SMP router's; an end before steps."""
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
        raise ValueError(f"{last.stage} is no stage of a notification")
    then = _status_then(last, changes) if said.by_subscription else ""
    return Explanation(last.stage, said.verdict, f"{said.means}{then}", said.to_do)


@dataclass(frozen=True, slots=True)
class _Said:
    verdict: DeliveryVerdict
    means: str
    to_do: str
    by_subscription: bool = False
    """What the NTF router's subscription was then explains it."""


NOTHING: Final = "Nothing: all is well."
_SUBSCRIBE: Final = "Is the NTF router connected to this SMP host? Then run `tocsin pipeline reconcile`."

SAID: Final = {
    Stage.ENQUEUED: _Said(
        DeliveryVerdict.WAITING,
        "The SMP router has it and has not sent it: no NTF router is subscribed to its queue.",
        _SUBSCRIBE,
        by_subscription=True,
    ),
    Stage.EXPIRED: _Said(
        DeliveryVerdict.LOST,
        "No NTF router was subscribed while the SMP router kept it.",
        _SUBSCRIBE,
        by_subscription=True,
    ),
    Stage.DROPPED: _Said(
        DeliveryVerdict.LOST,
        "The SMP router had no room for it: too many waited for this queue, or the queue lost its notifier.",
        "Is the NTF router subscribed? While nobody takes them, only some notifications are kept.",
    ),
    Stage.UNKNOWN_QUEUE: _Said(
        DeliveryVerdict.LOST,
        "The NTF router received it, but knows no subscription for its queue.",
        "Compare both routers with `tocsin pipeline reconcile`, then run `tocsin ntf repair`.",
        by_subscription=True,
    ),
    Stage.RECEIVED: _Said(
        DeliveryVerdict.WAITING,
        "The NTF router received it and has not tried to push it.",
        "If it is older than some seconds: is the router running and does it reach the provider? Notifications "
        "without an outcome past a deadline are handed back by `tocsin pipeline replay`.",
    ),
    Stage.BATCHED: _Said(
        DeliveryVerdict.WAITING,
        "It was handed to the delivery engine and has not been tried.",
        "Is the delivery job running? `tocsin pipeline deliver` goes on where it stopped.",
    ),
    Stage.SHED: _Said(
        DeliveryVerdict.LOST,
        "The NTF router was overloaded and dropped it on purpose.",
        "Give the router more CPU, or another instance; the report shows at which hours it sheds.",
    ),
    Stage.ACCEPTED: _Said(
        DeliveryVerdict.ARRIVED,
        "The provider accepted the push. From there on only the device knows, and it reports nothing unless it "
        "agreed to.",
        "If the user saw nothing: notifications may be off for the app, the device off or in a saving mode; the "
        "provider keeps only the newest push for a device that is off.",
    ),
    Stage.WOKEN: _Said(
        DeliveryVerdict.ARRIVED,
        "The device woke for it, but did not report that it fetched the message.",
        "On the device: is the SMP router reachable from its network? `tocsin agent doctor` tells.",
    ),
    Stage.FETCHED: _Said(DeliveryVerdict.ARRIVED, "The device woke and fetched the message.", NOTHING),
}
"""Of stages that say all there is to say; the others look at the rest of the way."""


def _attempted(chain: Chain) -> Explanation:
    tried = "once" if chain.attempts == 1 else f"{chain.attempts} times"
    means = f"The NTF router tried to push it {tried} and has no final answer from the provider yet."
    to_do = "Wait; if it stays so, look for the provider's answers in the router's log."
    return Explanation(Stage.ATTEMPTED, DeliveryVerdict.WAITING, means, to_do)


def _superseded(newer: Chain | None) -> Explanation:
    means = "A newer notification of the same queue replaced it before it was pushed: its news travelled with that one."
    stage = Stage.SUPERSEDED
    if newer is None:
        unknown = "That one is not in the tables."
        return Explanation(
            stage, DeliveryVerdict.REPLACED, f"{means} {unknown}", "Read newer events, and ask again."
        )
    means += f" It was the one of {moment_text(newer.began_at)}"
    if newer.first(stage):
        return Explanation(stage, DeliveryVerdict.REPLACED, f"{means}, itself replaced.", NOTHING)
    then = explanation(newer)
    if then.verdict is DeliveryVerdict.ARRIVED:
        return Explanation(stage, DeliveryVerdict.REPLACED, f"{means}, which was accepted.", NOTHING)
    # Its news is where that one is.
    return Explanation(
        stage, then.verdict, f"{means}, which stopped at “{then.stopped_at}”: {then.means}", then.to_do
    )


def _failed(last: StageStep, changes: Sequence[StatusChange]) -> Explanation:
    known = advice(last.reason)
    named = (
        f"Given up with the reason “{last.reason}”."
        if last.reason
        else "Given up; no reason was written down."
    )
    means = f"{named} {known.means}" if last.reason else named
    token = _latest(changes, Stage.TOKEN_CHANGED, last.at + SECOND)
    if token and token.after.startswith(("INVALID", "EXPIRED")):
        means += f" The token became {token.after} at {moment_text(token.at)}."
    return Explanation(
        Stage.FAILED,
        DeliveryVerdict.LOST,
        means,
        known.to_do if last.reason else "Look into the router's log.",
    )


def _sent(chain: Chain, last: StageStep, changes: Sequence[StatusChange]) -> Explanation:
    means = "The SMP router sent it, and no NTF router wrote down that it came."
    ends_at = (int(chain.period.partition("-")[0]) + 1) * PERIOD_SECONDS
    if ends_at - last.at / SECOND < MIDNIGHT_SECONDS:
        return Explanation(
            Stage.SENT,
            DeliveryVerdict.WAITING,
            f"{means} It was sent just before midnight UTC: its later stages may be under the next day's pseudonyms.",
            "Ask again for the next day, with the ids instead of pseudonyms.",
        )
    return Explanation(
        Stage.SENT,
        DeliveryVerdict.LOST,
        f"{means}{_status_then(last, changes)}",
        "Was the connection lost at that time, or does the NTF router belong to somebody else, or write no events? If "
        "it is ours: are its segments ingested, and does it use the same pseudonym keys?",
    )


def _two_ends(chain: Chain, ended: Sequence[Stage]) -> Explanation:
    names = " and ".join(sorted(set(ended)))
    arrived = Stage.ACCEPTED in ended
    return Explanation(
        ended[0],
        DeliveryVerdict.ARRIVED if arrived else DeliveryVerdict.LOST,
        f"It has two ends, {names}: the accounting counts it as a difference. This is a bug.",
        "Report it, with the events of this notification.",
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
