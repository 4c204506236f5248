"""The newest messages and pushes of a simulated system, for the view `Live`: bounded, without I/O."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any, Final

MOST_MESSAGES: Final = 200
MOST_PUSHES: Final = 400
MOST_TIMES: Final = 50


class Station(StrEnum):
    """Where something happens, in the order of a notification's path."""

    SENDER = "sender"
    SMP = "smp"
    NTF = "ntf"
    PROVIDER = "provider"
    DEVICE = "device"


class MessageStep(StrEnum):
    """The steps of a message, in order."""

    SENT = "sent"
    STORED = "stored"
    SMP_TIME = "smp_time"
    NTF_TIME = "ntf_time"
    PUSHED = "pushed"
    WOKEN = "woken"
    FETCHED = "fetched"


STEPS: Final[dict[MessageStep, tuple[Station, str]]] = {
    MessageStep.SENT: (Station.SENDER, "sent"),
    MessageStep.STORED: (Station.SMP, "stored by the SMP router"),
    MessageStep.SMP_TIME: (Station.SMP, "SMP router’s time, sealed"),
    MessageStep.NTF_TIME: (Station.NTF, "received by the NTF router"),
    MessageStep.PUSHED: (Station.PROVIDER, "push accepted by the provider"),
    MessageStep.WOKEN: (Station.DEVICE, "phone woken by the push"),
    MessageStep.FETCHED: (Station.DEVICE, "fetched and opened by the phone"),
}
WHOLE_SECONDS: Final = frozenset({MessageStep.SMP_TIME, MessageStep.NTF_TIME})
"""Routers report these in whole seconds only: finer times would reveal more than devices need."""


@dataclass
class SentMessage:
    number: int
    sender: str
    receiver: str
    text: str
    mention: bool
    """The sender marked it as one."""
    expects_push: bool
    """Whether the receiver wanted a notification for it when it was sent."""
    by_hand: bool
    """A person sent it; the phones sent the others on their own."""
    times: dict[MessageStep, float] = field(default_factory=dict)
    failure: str = ""
    message_id: bytes = field(default=b"", repr=False)
    push: int | None = None
    """Number of the push that announced it."""
    engine: str = ""
    """The engine that made that push: `inline` or `spark`."""
    received_as_mention: bool = False
    """The receiver's agent said so when it fetched the message."""

    def summary(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "sender": self.sender,
            "receiver": self.receiver,
            "text": self.text,
            "mention": self.mention,
            "receivedAsMention": self.received_as_mention,
            "expectsPush": self.expects_push,
            "byHand": self.by_hand,
            "failure": self.failure,
            "push": self.push,
            "engine": self.engine,
            "times": {step.value: at for step, at in self.times.items()},
        }


@dataclass
class SeenPush:
    """A push, and what its device found in it."""

    number: int
    phone: str
    at: float
    payload: bytes = field(repr=False)
    device_token: str = field(default="", repr=False)
    engine: str = ""
    woken_at: float | None = None
    items: list[dict[str, Any]] = field(default_factory=list)
    """Layer one, opened: oldest first."""
    announced: dict[bytes, int] = field(default_factory=dict, repr=False)
    """Layer two, opened: message IDs, and the index of their item."""


class LiveHistory:
    def __init__(self, most_messages: int = MOST_MESSAGES, most_pushes: int = MOST_PUSHES) -> None:
        self._messages: OrderedDict[int, SentMessage] = OrderedDict()
        self._pushes: OrderedDict[int, SeenPush] = OrderedDict()
        self._most_messages = most_messages
        self._most_pushes = most_pushes
        self._numbers = 0
        self.counts: dict[str, int] = dict.fromkeys(("sent", "stored", "pushed", "woken", "fetched"), 0)
        """Since the start, including what is no longer remembered."""
        self.pushes_by: Counter[str] = Counter()
        """The same for pushes, by engine."""

    def usual_seconds(self, engine: str) -> float | None:
        """The median time from a message at its SMP router to its push by this engine, of the newest messages."""
        times = [
            max(message.times[MessageStep.PUSHED] - message.times[MessageStep.STORED], 0.0)
            for message in self._messages.values()
            if message.engine == engine and MessageStep.STORED in message.times
        ][-MOST_TIMES:]
        return median(times) if times else None

    def __len__(self) -> int:
        return len(self._messages)

    def newest(self) -> list[SentMessage]:
        """Oldest first."""
        return list(self._messages.values())

    def message(self, number: int) -> SentMessage | None:
        return self._messages.get(number)

    def push(self, number: int | None) -> SeenPush | None:
        return None if number is None else self._pushes.get(number)

    def sending(
        self,
        sender: str,
        receiver: str,
        text: str,
        at: float,
        *,
        mention: bool,
        expects_push: bool,
        by_hand: bool,
    ) -> SentMessage:
        self._numbers += 1
        made = SentMessage(
            self._numbers, sender, receiver, text, mention, expects_push, by_hand, {MessageStep.SENT: at}
        )
        self._messages[made.number] = made
        self.counts["sent"] += 1
        if len(self._messages) > self._most_messages:
            self._messages.popitem(last=False)
        return made

    def stored(self, message: SentMessage, at: float) -> None:
        message.times[MessageStep.STORED] = at
        self.counts["stored"] += 1

    def pushed(self, phone: str, payload: bytes, device_token: str, at: float, engine: str = "") -> SeenPush:
        self._numbers += 1
        made = SeenPush(self._numbers, phone, at, payload, device_token, engine)
        self.pushes_by[engine] += 1
        self._pushes[made.number] = made
        self.counts["pushed"] += 1
        if len(self._pushes) > self._most_pushes:
            self._pushes.popitem(last=False)
        return made

    def woken(self, push: SeenPush, at: float) -> None:
        push.woken_at = at
        self.counts["woken"] += 1

    def fetched(
        self, receiver: str, sender: str | None, text: str, message_id: bytes, smp_time: int, at: float
    ) -> SentMessage | None:
        """Returns the message, completed from the push that announced it; None if it is no longer remembered."""
        self.counts["fetched"] += 1
        found = self._waiting(receiver, sender, text)
        if found is None:
            return None
        found.message_id = message_id
        found.times[MessageStep.SMP_TIME] = smp_time
        found.times[MessageStep.FETCHED] = at
        found.failure = ""
        for push in self._pushes.values():
            if message_id in push.announced:
                _link(found, push)
                break
        return found

    def opened(self, push: SeenPush) -> list[SentMessage]:
        """Messages fetched before this push announced them: a woken phone fetches from all its queues."""
        late = [
            message
            for message in self._messages.values()
            if message.push is None and message.message_id and message.message_id in push.announced
        ]
        for message in late:
            _link(message, push)
        return late

    def _waiting(self, receiver: str, sender: str | None, text: str) -> SentMessage | None:
        for message in self._messages.values():
            is_it = (
                message.receiver == receiver
                and message.text == text
                and MessageStep.FETCHED not in message.times
            )
            if is_it and sender in (None, message.sender):
                return message
        return None


def _link(message: SentMessage, push: SeenPush) -> None:
    message.push = push.number
    message.engine = push.engine
    message.times[MessageStep.PUSHED] = push.at
    if push.woken_at is not None:
        message.times[MessageStep.WOKEN] = push.woken_at
    notified_at = push.items[push.announced[message.message_id]].get("receivedAt")
    if notified_at is not None:
        message.times[MessageStep.NTF_TIME] = notified_at
