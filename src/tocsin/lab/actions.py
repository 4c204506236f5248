"""The actions behind the buttons of the view `Live`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from tocsin.errors import TocsinError
from tocsin.lab.deliver_job import JobPhase
from tocsin.lab.live import LiveRecorder
from tocsin.lab.phone_engines import PhoneEngines
from tocsin.lab.phones import Phone
from tocsin.lab.system import System
from tocsin.ntf_router.settings.settings import DeliveryEngine
from tocsin.protocol.direct.priorities import MinimumPriority
from tocsin.protocol.smp.sender_commands import MENTION_PRIORITY
from tocsin.web.page_server import Action, NotDone

MOST_TEXT: Final = 500
LEVELS: Final = {
    "all": MinimumPriority.ALL,
    "mentions": MinimumPriority.PRIORITY,
    "none": MinimumPriority.OFF,
}

ENGINES: Final = {each.value: each for each in (DeliveryEngine.INLINE, DeliveryEngine.SPARK)}


class UpActions:
    """Every action raises NotDone with a sentence for the reader of the page."""

    def __init__(self, system: System, live: LiveRecorder, engines: PhoneEngines) -> None:
        self._system = system
        self.engines = engines
        self._live = live
        self.chatter = asyncio.Event()
        """Set while phones write by themselves."""

    def by_path(self) -> dict[str, Action]:
        named: dict[str, Callable[[Mapping[str, Any]], Awaitable[Any]]] = {
            "send": self.send,
            "notify": self.notify,
            "phone": self.phone,
            "look": self.look,
            "kill": self.kill,
            "chatter": self.set_chatter,
            "engine": self.engine,
        }
        return {f"/api/{name}": action for name, action in named.items()}

    async def send(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        sender, receiver = self._phone(asked.get("from")), self._phone(asked.get("to"))
        text = asked.get("text")
        if sender is receiver:
            raise NotDone("choose two different phones")
        if not isinstance(text, str) or not 0 < len(text) <= MOST_TEXT:
            raise NotDone(f"write from 1 to {MOST_TEXT} characters", HTTPStatus.BAD_REQUEST)
        if not sender.online.is_set():
            raise NotDone(f"{sender.name}’s phone is offline and cannot send: switch it on first")
        return await self.write(sender, receiver, text, mention=asked.get("mention") is True, by_hand=True)

    async def write(
        self, sender: Phone, receiver: Phone, text: str, *, mention: bool = False, by_hand: bool = False
    ) -> dict[str, Any]:
        """Send a message, and return its summary after the SMP router's answer or a failure."""
        chat, back = sender.chat_with(receiver.name), receiver.chat_with(sender.name)
        if chat is None or back is None:
            raise NotDone("these two phones have no chat: choose another pair")
        wanted = receiver.wanted.get(back, MinimumPriority.ALL)
        message = self._live.history.sending(
            sender.name,
            receiver.name,
            text,
            time.time(),
            mention=mention,
            expects_push=wanted.admits(MENTION_PRIORITY if mention else 1),
            by_hand=by_hand,
        )
        self._live.changed(message)
        failure = await sender.send(chat, text.encode(), mention=mention)
        if failure is None:
            self._system.sent += 1
            self._live.history.stored(message, time.time())
        else:
            message.failure = f"the SMP router did not accept it: {failure}"
        self._live.changed(message)
        return message.summary()

    async def notify(self, asked: Mapping[str, Any]) -> None:
        """Choose the messages for which a phone is woken."""
        phone, peer = self._phone(asked.get("phone")), self._phone(asked.get("peer"))
        chat, level = phone.chat_with(peer.name), LEVELS.get(str(asked.get("level")))
        if chat is None or level is None:
            raise NotDone("choose all, mentions or none of a chat", HTTPStatus.BAD_REQUEST)
        try:
            await phone.want(chat, level)
        except TocsinError as error:
            raise NotDone(f"the change failed: {error}. Try again") from error
        self.publish_phones()

    async def phone(self, asked: Mapping[str, Any]) -> None:
        phone = self._phone(asked.get("phone"))
        if asked.get("online") is True:
            phone.online.set()
        else:
            phone.online.clear()
        self.publish_phones()

    async def look(self, asked: Mapping[str, Any]) -> None:
        """Open the app: it fetches messages for which it was not woken."""
        phone = self._phone(asked.get("phone"))
        if not phone.online.is_set():
            raise NotDone(f"{phone.name}’s phone is offline and cannot fetch: switch it on first")
        try:
            await phone.look()
        except TocsinError as error:
            raise NotDone(f"fetching failed: {error}. Try again") from error

    async def engine(self, asked: Mapping[str, Any]) -> None:
        """Choose who pushes to a phone from now on."""
        phone, wanted = self._phone(asked.get("phone")), ENGINES.get(str(asked.get("engine")))
        if not self._system.has_job:
            raise NotDone("only the router pushes: start again with --engine both")
        if wanted is None:
            raise NotDone("choose inline or spark", HTTPStatus.BAD_REQUEST)
        self.engines.wanted[phone.name] = wanted
        await self.engines.apply(ready=self._system.job.phase is JobPhase.PUSHING)
        self.publish_phones()

    async def kill(self, asked: Mapping[str, Any]) -> None:
        if asked.get("router") == "spark":
            if not self._system.job.running:
                raise NotDone("Spark is not running: wait a moment")
            self._system.job.kill()
            return
        routers = {"smp": self._system.smp, "ntf": self._system.ntf}
        router = routers.get(str(asked.get("router")))
        if router is None:
            raise NotDone("choose smp, ntf or spark", HTTPStatus.BAD_REQUEST)
        if not router.serving:
            raise NotDone("the router is already down and restarts by itself: wait a moment")
        router.kill()

    async def set_chatter(self, asked: Mapping[str, Any]) -> None:
        if asked.get("on") is True:
            self.chatter.set()
        else:
            self.chatter.clear()
        self._live.publish("chatter", self.chatter.is_set())

    def publish_phones(self) -> None:
        engines = self.engines if self._system.has_job else None
        self._live.publish(
            "phones", [_shown(phone, self._system.people, engines) for phone in self._system.people]
        )

    def _phone(self, name: object) -> Phone:
        found = next((phone for phone in self._system.people if phone.name == name), None)
        if found is None:
            raise NotDone("unknown phone: reload the page", HTTPStatus.BAD_REQUEST)
        return found


def _shown(phone: Phone, people: Sequence[Phone], engines: PhoneEngines | None) -> dict[str, Any]:
    names = {minimum: name for name, minimum in LEVELS.items()}
    chats = [(other.name, phone.chat_with(other.name)) for other in people if other is not phone]
    return {
        "name": phone.name,
        "online": phone.online.is_set(),
        "engine": None if engines is None else engines.wanted[phone.name].value,
        "engineNow": None if engines is None else engines.engine_of(phone.name).value,
        "chats": [
            {"peer": peer, "level": names.get(phone.wanted.get(chat, MinimumPriority.ALL), "mentions")}
            for peer, chat in chats
            if chat is not None
        ],
    }
