"""Texts of the notices that instances of a fleet send each other. A lost notice only delays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tocsin.errors import DecodeError
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.wire.base64url import decode_base64url, encode_base64url

_PROVIDERS: Final = {provider.text: provider for provider in PushProvider}


MOST_TOKENS: Final = 200
"""Tokens of one notice, whose text PostgreSQL limits to 8,000 bytes."""
MOST_ROUTERS: Final = 150
"""SMP routers of one notice."""


@dataclass(frozen=True, slots=True)
class PendingTold:
    """Tokens whose pushes are the receiver's have pending notifications."""

    token_ids: tuple[bytes, ...]
    """At most `MOST_TOKENS`."""
    provider: PushProvider
    late: bool = False
    """They were told to another instance before, and are not passed on again."""

    def text(self) -> str:
        ids = " ".join(map(encode_base64url, self.token_ids))
        return f"{'late' if self.late else 'push'} {self.provider.text} {ids}"


@dataclass(frozen=True, slots=True)
class CodeTold:
    """A token's code is to be pushed."""

    token_id: bytes

    def text(self) -> str:
        return f"code {encode_base64url(self.token_id)}"


@dataclass(frozen=True, slots=True)
class RouterTold:
    """An SMP router of the receiver's has new queues."""

    key_hash: bytes

    def text(self) -> str:
        return f"router {encode_base64url(self.key_hash)}"


@dataclass(frozen=True, slots=True)
class ReachedTold:
    """A member has reached an SMP router of the receiver's, which said that it cannot."""

    key_hash: bytes
    member: int

    def text(self) -> str:
        return f"reached {encode_base64url(self.key_hash)} {self.member}"


@dataclass(frozen=True, slots=True)
class LostTold:
    """The sender had SMP routers until now, and says that it cannot reach them."""

    key_hashes: tuple[bytes, ...]
    """At most `MOST_ROUTERS`."""

    def text(self) -> str:
        return f"lost {' '.join(map(encode_base64url, self.key_hashes))}"


Told: TypeAlias = PendingTold | CodeTold | RouterTold | ReachedTold | LostTold


def parse_told(text: str) -> Told | None:
    """Return what a notice says, None if it is of another version."""
    word, *rest = text.split(" ")
    try:
        match word, rest:
            case "push" | "late", [provider, *names] if provider in _PROVIDERS and names:
                return PendingTold(tuple(map(decode_base64url, names)), _PROVIDERS[provider], word == "late")
            case "code", [name]:
                return CodeTold(decode_base64url(name))
            case "router", [name]:
                return RouterTold(decode_base64url(name))
            case "reached", [name, member] if member.isdecimal():
                return ReachedTold(decode_base64url(name), int(member))
            case "lost", [_, *_]:
                return LostTold(tuple(map(decode_base64url, rest)))
    except DecodeError:
        pass
    return None
