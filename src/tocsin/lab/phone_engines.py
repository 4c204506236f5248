"""Which engine pushes to each phone: what was chosen, and what the NTF router was told.

The router gives no token to the job by itself (`delivery_share` is 0). So phones are woken by the router from the first
second, and those of the job move to it when it pushes. A router that restarts has forgotten what it was told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tocsin.errors import TocsinError
from tocsin.lab.phones import Phone
from tocsin.ntf_router.settings.settings import DeliveryEngine
from tocsin.operate.control_port import order_of_operator
from tocsin.wire.base64url import encode_base64url

APPLY_SECONDS: Final = 0.3

logger = logging.getLogger(__name__)


class PhoneEngines:
    """`wanted` is what people chose, and `told` what the router does."""

    def __init__(self, people: Sequence[Phone], engine: DeliveryEngine, port: int, password: str) -> None:
        self._people = people
        self._port = port
        self._password = password
        self.wanted: dict[str, DeliveryEngine] = {
            phone.name: _first_choice(engine, number) for number, phone in enumerate(people)
        }
        self.told: dict[str, DeliveryEngine] = {}

    def engine_of(self, phone: str) -> DeliveryEngine:
        """The engine that pushes to a phone now, unless the job is away."""
        return self.told.get(phone, DeliveryEngine.INLINE)

    def forget(self) -> None:
        """Note that the router has restarted."""
        self.told.clear()

    async def apply(self, *, ready: bool) -> bool:
        """Tell the router what has changed; nothing goes to a job that is not `ready`. Returns whether all is told."""
        done = True
        for phone in self._people:
            wanted = self.wanted[phone.name] if ready else DeliveryEngine.INLINE
            if self.engine_of(phone.name) is wanted:
                continue
            try:
                token = await phone.agent.tokens.current()
                if token.token_id is None:
                    done = False
                    continue
                order = f"engine {encode_base64url(token.token_id)} {wanted.value}"
                answer = await order_of_operator(self._port, self._password, order)
            except TocsinError as error:
                logger.warning("the engine of a phone was not changed: %s", error)
                answer = None
            if answer is None:
                done = False
            else:
                self.told[phone.name] = wanted
        return done

    async def keep_applied(self, ready: Callable[[], bool], changed: Callable[[], object]) -> None:
        while True:
            before = dict(self.told)
            await self.apply(ready=ready())
            if self.told != before:
                changed()
            await asyncio.sleep(APPLY_SECONDS)


def _first_choice(engine: DeliveryEngine, number: int) -> DeliveryEngine:
    """Both engines take turns: the first phone is the router's, the second the job's."""
    if engine is not DeliveryEngine.BOTH:
        return engine
    return DeliveryEngine.SPARK if number % 2 else DeliveryEngine.INLINE
