"""The operator's port of an NTF router (ntf.md 4.14), with the reference's commands and three of ours.

Unlike the reference, the third wrong password in a session ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from tocsin.errors import DecodeError, StoreError
from tocsin.ntf_router.settings.settings import DeliveryEngine
from tocsin.operate.control_port import MAX_WRONG_PASSWORDS, ControlPasswords, Role
from tocsin.wire.base64url import decode_base64url

GREETING: Final = "Ntf server control port\n'help' for supported commands"
HELP: Final = "commands: stats, stats-rts, server-info, resubscribe, deliver-pending, engine, help, quit"
ENGINE_HELP: Final = "error: engine needs a token id in base64url, and inline, spark or share"
ENGINES: Final = {"inline": DeliveryEngine.INLINE, "spark": DeliveryEngine.SPARK, "share": None}
"""The words of `engine`. None leaves the token to the share."""
ROLE_NAMES: Final = {Role.NOBODY: "CPRNone", Role.USER: "CPRUser", Role.ADMIN: "CPRAdmin"}

logger = logging.getLogger(__name__)


class NtfControl(Protocol):
    """Everything an operator can see, in lines, and do."""

    def stats(self) -> Iterable[str]:
        """The counters."""

    def process(self) -> Iterable[str]:
        """Time, memory, garbage collection."""

    def server_info(self, *, with_names: bool) -> Iterable[str]:
        """SMP routers, subscriptions and pushes now; `with_names` names the operator's own SMP routers."""

    async def resubscribe(self) -> int:
        """Subscribe to all queues again, and return the number of SMP routers. Raises StoreError."""

    async def deliver_pending(self) -> int:
        """Deliver what is pending in the store, and return the number of tokens."""

    async def choose_engine(self, token_id: bytes, engine: DeliveryEngine | None) -> str:
        """Choose who pushes for a token, and return the engine that it has now. Raises StoreError."""


class NtfControlSession:
    """One operator's session, without its connection."""

    def __init__(self, control: NtfControl, passwords: ControlPasswords) -> None:
        self._control = control
        self._passwords = passwords
        self._role = Role.NOBODY
        self._wrong_passwords = 0
        self.ended = False
        """Whether the last line ended the session."""

    async def answer(self, line: str) -> str:
        """The answer, which may be empty. An error never repeats the line, which may be a password."""
        word, _, rest = line.strip().partition(" ")
        match word, rest.strip():
            case "", _:
                return ""
            case "auth", password if password:
                return self._authenticate(password)
            case "stats", "":
                return self._lines(word, self._control.stats)
            case "stats-rts", "":
                return "\n".join(self._control.process())
            case "server-info", "":
                with_names = self._role is Role.ADMIN
                return self._lines(word, lambda: self._control.server_info(with_names=with_names))
            case "resubscribe", "":
                return await self._order(word, self._control.resubscribe, " SMP routers")
            case "deliver-pending", "":
                return await self._order(word, self._control.deliver_pending, " tokens")
            case "engine", choice:
                return await self._choose_engine(choice)
            case "help", "":
                return HELP
            case "quit", "":
                self.ended = True
                return ""
            case _:
                return f"error: unknown command, {HELP}"

    def _lines(self, word: str, lines: Callable[[], Iterable[str]]) -> str:
        if self._role is Role.NOBODY:
            logger.warning("control port: refused %s, which the role does not allow", word)
            return "AUTH"
        logger.info("control port: %s by %s", word, self._role.name.lower())
        return "\n".join(lines())

    async def _choose_engine(self, choice: str) -> str:
        match choice.split():
            case [named, word] if word in ENGINES:
                try:
                    token_id = decode_base64url(named)
                except DecodeError:
                    return ENGINE_HELP
                return await self._order(
                    "engine", lambda: self._control.choose_engine(token_id, ENGINES[word])
                )
            case _:
                return ENGINE_HELP

    async def _order(self, word: str, order: Callable[[], Awaitable[int | str]], what: str = "") -> str:
        """Only the administrator may give orders."""
        if self._role is not Role.ADMIN:
            logger.warning("control port: refused %s, which the role does not allow", word)
            return "AUTH"
        logger.info("control port: %s by %s", word, self._role.name.lower())
        try:
            return f"ok, {await order()}{what}"
        except StoreError as error:
            return f"error: {error}"

    def _authenticate(self, password: str) -> str:
        wanted = self._passwords.role_of(password)
        if self._role is not Role.NOBODY:
            hint = "" if wanted is self._role else ", start new session to change."
            return f"Current role is {ROLE_NAMES[self._role]}{hint}"
        self._role = wanted
        if wanted is Role.NOBODY:
            self._wrong_passwords += 1
            self.ended = self._wrong_passwords >= MAX_WRONG_PASSWORDS
            logger.warning("control port: wrong password")
        return f"Current role is {ROLE_NAMES[self._role]}"
