"""Device tokens in memory, by id, by number and by device token."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.ntf.device_tokens import DeviceToken
from tocsin.protocol.ntf.pushes import item_text, sealed_meta_of


class KeptNotification(msgspec.Struct, gc=False):
    """A queue's last notification. Its text is made once, since it goes into several pushes, and is all there is."""

    received_at: float
    nonce: bytes
    item: bytes
    """Text without the SMP router, which its queue has in common with others."""
    pending: bool

    @classmethod
    def of(
        cls, notifier_id: bytes, received_at: float, nonce: bytes, sealed_meta: bytes, *, pending: bool
    ) -> Self:
        item = item_text(notifier_id, int(received_at), nonce, sealed_meta)
        return cls(received_at, nonce, item, pending)

    @property
    def sealed_meta(self) -> bytes:
        return sealed_meta_of(self.item)


@dataclass(slots=True)
class KeptToken:
    number: int
    record: TokenRecord
    rows: array[int] = field(default_factory=lambda: array("I"))
    """Its subscriptions."""
    last: dict[int, KeptNotification] | None = None
    """By row of the subscription, oldest first; None instead of an empty one."""


class TokenTable:
    """A token's number is what rows of subscriptions name it by; numbers are used again."""

    def __init__(self) -> None:
        self._tokens: Final[dict[bytes, KeptToken]] = {}
        self._numbers: Final[list[KeptToken | None]] = []
        self._free_numbers: Final = array("I")
        self._registrations: Final[dict[DeviceToken, bytes | dict[bytes, bytes]]] = {}
        """Device token → token id; or, if several keys have registered it, → verify key → token id."""

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[KeptToken]:
        return iter(self._tokens.values())

    def get(self, token_id: bytes) -> KeptToken | None:
        return self._tokens.get(token_id)

    def of_number(self, number: int) -> KeptToken:
        token = self._numbers[number]
        assert token is not None
        return token

    def registration(self, device_token: DeviceToken, verify_key: bytes) -> KeptToken | None:
        registered = self._registrations.get(device_token)
        if isinstance(registered, dict):
            token_id = registered.get(verify_key)
            return None if token_id is None else self._tokens[token_id]
        token = None if registered is None else self._tokens[registered]
        return token if token is not None and token.record.verify_key == verify_key else None

    def registrations(self, device_token: DeviceToken) -> list[KeptToken]:
        """By whichever key."""
        registered = self._registrations.get(device_token)
        if registered is None:
            return []
        token_ids = registered.values() if isinstance(registered, dict) else (registered,)
        return [self._tokens[token_id] for token_id in token_ids]

    def add(self, record: TokenRecord) -> KeptToken | None:
        """None, changing nothing, if the id or the registration is there already."""
        if record.token_id in self._tokens or self.registration(record.device_token, record.verify_key):
            return None
        number = self._free_numbers.pop() if self._free_numbers else len(self._numbers)
        token = KeptToken(number, record)
        if number == len(self._numbers):
            self._numbers.append(token)
        else:
            self._numbers[number] = token
        self._tokens[record.token_id] = token
        self._register(record)
        return token

    def remove(self, token: KeptToken) -> None:
        del self._tokens[token.record.token_id]
        self._numbers[token.number] = None
        self._free_numbers.append(token.number)
        self._unregister(token.record)

    def change_device_token(self, token: KeptToken, record: TokenRecord) -> bool:
        """False, changing nothing, if the same key has registered that device token already."""
        holder = self.registration(record.device_token, record.verify_key)
        if holder is not None and holder is not token:
            return False
        self._unregister(token.record)
        token.record = record
        self._register(record)
        return True

    def _register(self, record: TokenRecord) -> None:
        registered = self._registrations.get(record.device_token)
        if registered is None:
            self._registrations[record.device_token] = record.token_id
        elif isinstance(registered, dict):
            registered[record.verify_key] = record.token_id
        else:
            first = self._tokens[registered].record
            self._registrations[record.device_token] = {
                first.verify_key: first.token_id,
                record.verify_key: record.token_id,
            }

    def _unregister(self, record: TokenRecord) -> None:
        """Only what still points to this very token."""
        registered = self._registrations.get(record.device_token)
        if registered == record.token_id:
            del self._registrations[record.device_token]
        elif isinstance(registered, dict) and registered.get(record.verify_key) == record.token_id:
            del registered[record.verify_key]
            if len(registered) == 1:
                [self._registrations[record.device_token]] = registered.values()
