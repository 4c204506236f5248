"""PING and its answer, the same in both protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tocsin.protocol.messages import Command, EntityRule, Needs, Response


@dataclass(frozen=True, slots=True)
class Ping(Command):
    """PING: keep the connection alive."""

    tag: ClassVar[bytes] = b"PING"
    needs: ClassVar[Needs] = Needs.NOTHING


@dataclass(frozen=True, slots=True)
class Pong(Response):
    """PONG"""

    tag: ClassVar[bytes] = b"PONG"
    entity: ClassVar[EntityRule] = EntityRule.EMPTY
