"""What instances of a fleet tell each other, as text of a notice. A lost notice only delays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tocsin.errors import DecodeError
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.wire.base64url import decode_base64url, encode_base64url

_PROVIDERS: Final = {provider.text: provider for provider in PushProvider}


@dataclass(frozen=True, slots=True)
class PendingTold:
    """A token whose pushes are the receiver's has pending notifications."""

    token_id: bytes
    provider: PushProvider
    late: bool = False
    """It was told to another instance before, and is not passed on again."""

    def text(self) -> str:
        return f"{'late' if self.late else 'push'} {encode_base64url(self.token_id)} {self.provider.text}"


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


Told: TypeAlias = PendingTold | CodeTold | RouterTold


def parse_told(text: str) -> Told | None:
    """Return what a notice says, None if it is of another version."""
    word, _, rest = text.partition(" ")
    name, _, provider = rest.partition(" ")
    try:
        entity_id = decode_base64url(name)
    except DecodeError:
        return None
    match word:
        case "push" | "late" if provider in _PROVIDERS:
            return PendingTold(entity_id, _PROVIDERS[provider], word == "late")
        case "code":
            return CodeTold(entity_id)
        case "router":
            return RouterTold(entity_id)
    return None
