"""The contents of the view `Live`: every message with its times, and what phones opened."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from tocsin.lab.deliver_job import ENTRANCE
from tocsin.lab.layers import is_message_push, opened_layers
from tocsin.lab.phones import Arrival, Phone
from tocsin.push.fake.behaviours import Behaviour
from tocsin.push.fake.server import RecordedPush
from tocsin.web.engines_view import INLINE, SPARK
from tocsin.web.live_history import (
    STEPS,
    WHOLE_SECONDS,
    LiveHistory,
    MessageStep,
    SeenPush,
    SentMessage,
)
from tocsin.web.operate_reader import OPERATE
from tocsin.web.page_events import PageEvents
from tocsin.web.page_server import NotDone
from tocsin.web.visibility import visibility_table

FROM: Final = {INLINE: "the router", SPARK: "Spark"}
_MOST_KEYS: Final = 1000


class LiveRecorder:
    """Receives events of phones and provider, and sends them to open pages. Implements `phones.Observer`."""

    def __init__(self) -> None:
        self.history = LiveHistory()
        self.events = PageEvents(self._everything)
        self.last: list[Arrival] = []
        self.states: dict[str, Any] = {}
        """The current states that pages show besides messages, by event name."""
        self.operate: Callable[[], dict[str, Any]] | None = None
        """The newest view `Operate`."""
        self._phones: dict[bytes, str] = {}
        self._pushes: OrderedDict[tuple[int, int], SeenPush] = OrderedDict()

    def set_phones(self, people: Iterable[Phone]) -> None:
        self._phones = {phone.device_token: phone.name for phone in people}

    def publish(self, name: str, content: Any) -> None:
        """Set a state that pages show."""
        self.states[name] = content
        self.events.send(name, content)

    def _everything(self) -> Iterable[tuple[str, Any]]:
        yield from self.states.items()
        if self.operate is not None:
            yield OPERATE, self.operate()
        messages = [message.summary() for message in self.history.newest()]
        yield "history", {"messages": messages, "counts": self.history.counts}

    def changed(self, message: SentMessage) -> None:
        self.events.send("message", {"message": message.summary(), "counts": self.history.counts})

    # Events

    def requested(self, push: RecordedPush, _behaviour: Behaviour) -> None:
        """The provider received a push: `FakeApns.on_push`."""
        if not is_message_push(push.payload):
            return
        phone = self._phones.get(push.device_token, "an unknown phone")
        token = push.device_token.decode(errors="replace")
        engine = SPARK if push.entrance == ENTRANCE else INLINE
        seen = self.history.pushed(phone, push.payload, token, push.received_at, engine)
        self._pushes[push.key] = seen
        if len(self._pushes) > _MOST_KEYS:
            self._pushes.popitem(last=False)
        self.events.send("push", {"phone": phone, "counts": self.history.counts})

    async def woken(self, phone: Phone, push: RecordedPush) -> None:
        seen = self._pushes.pop(push.key, None)
        if seen is None:
            return
        self.history.woken(seen, time.time())
        seen.items, seen.announced = await opened_layers(phone.store, push.payload)
        for item in seen.items:
            item["peer"] = phone.chats.get(item.get("connection", ""))
        self.events.send("woken", {"phone": phone.name, "counts": self.history.counts})
        for message in self.history.opened(seen):
            self.changed(message)

    def arrived(self, arrival: Arrival) -> None:
        self.last = [*self.last[-4:], arrival]
        text = arrival.body.decode(errors="replace")
        message = self.history.fetched(
            arrival.phone, arrival.sender, text, arrival.message_id, arrival.sent_at, time.time()
        )
        if message is not None:
            message.received_as_mention = arrival.mention
            self.changed(message)

    # Requests of pages

    async def details(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Everything about one message. Raises NotDone."""
        number = query.get("number", "")
        message = self.history.message(int(number)) if number.isascii() and number.isdigit() else None
        if message is None:
            raise NotDone("this message is no longer kept: choose a newer one", HTTPStatus.NOT_FOUND)
        push = self.history.push(message.push)
        return {
            **message.summary(),
            "steps": [
                {
                    "step": step.value,
                    "station": station.value,
                    "label": _step_label(step, label, message.engine),
                    "at": message.times.get(step),
                    "wholeSeconds": step in WHOLE_SECONDS,
                }
                for step, (station, label) in STEPS.items()
            ],
            "visibility": visibility_table(message, push),
            "layers": None if push is None else _layers(message, push),
        }


def _step_label(step: MessageStep, label: str, engine: str) -> str:
    return f"{label}, from {FROM[engine]}" if step is MessageStep.PUSHED and engine else label


def _layers(message: SentMessage, push: SeenPush) -> dict[str, Any]:
    return {
        "phone": push.phone,
        "payload": push.payload.decode(errors="replace"),
        "bytes": len(push.payload),
        "items": push.items,
        "index": push.announced.get(message.message_id),
        "message": {"text": message.text, "bytes": len(message.text.encode())},
    }
