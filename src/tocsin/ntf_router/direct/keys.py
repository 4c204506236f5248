"""Keys of an NTF router for direct notifications: devices seal packets to some, and one authorizes its commands.

All are in the store, so that they survive a restart and routers that share a database share them too. `rotate`
creates new keys when they are due, and erases expired ones. It runs every few minutes and before a key is given out;
between its runs the times of the keys decide, so that an expired key opens nothing.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

import msgspec

from tocsin.crypto.keys import Ed25519PrivateKey, X25519PrivateKey
from tocsin.errors import StoreError
from tocsin.ntf_router.settings.settings import NtfDirectSettings
from tocsin.ntf_router.store.interface import DirectStore
from tocsin.operate.clock import Clock
from tocsin.operate.randomness import TokenRandomness
from tocsin.protocol.addresses import RouterLocation, Scheme
from tocsin.protocol.direct.ntf_keys import KeySchedule, NtfKey, NtfKeyOffer

logger = logging.getLogger(__name__)


class _StoredKey(msgspec.Struct):
    private_key: bytes
    created_at: int
    expires_at: int


class _StoredKeys(msgspec.Struct):
    """The encoded form in the store."""

    packet_keys: list[_StoredKey]
    auth_key: bytes
    auth_key_at: int
    address: str = ""
    """The router's address that was registered at SMP routers with this key."""


_CODER: Final = msgspec.msgpack.Decoder(_StoredKeys)


@dataclass(frozen=True, slots=True)
class AuthKey:
    """Authorizes NSRV and NSSUB."""

    key: Ed25519PrivateKey
    issued_at: int


class DirectKeys:
    """The current keys. Call `rotate` before anything else."""

    def __init__(
        self, store: DirectStore, settings: NtfDirectSettings, clock: Clock, randomness: TokenRandomness
    ) -> None:
        self._store = store
        self._settings = settings
        self._schedule = KeySchedule(int(settings.key_lifetime), int(settings.key_rotation))
        self._clock = clock
        self._randomness = randomness
        self._keys: tuple[NtfKey, ...] = ()
        self._due_at = 0
        """The time at which a key expires or the next one must be made."""
        self._rotating = asyncio.Lock()
        self._read_at = 0
        self.auth: AuthKey
        self._address = ""

    @property
    def packet_keys(self) -> dict[bytes, X25519PrivateKey]:
        """Keys by id that have not expired."""
        now = self._clock.now()
        return {key.offer.key_id: key.private_key for key in self._keys if key.expires_at > now}

    async def read_again(self) -> bool:
        """Read the keys that other processes may have made, at most once a second. Returns whether it was done."""
        now = self._clock.now()
        if now == self._read_at:
            return False
        self._read_at = now
        await self.rotate()
        return True

    async def newest(self) -> NtfKeyOffer:
        """Return the newest packet key, which devices use. Raises StoreError if it expired and has no successor."""
        try:
            if self._clock.now() >= self._due_at:
                await self.rotate()
        except StoreError:
            if self._keys[0].expires_at <= self._clock.now():
                raise
        return self._keys[0].offer

    @property
    def last_end(self) -> int:
        """The time from which no packet of today can be opened, also none to a key that another process made."""
        return max(self._clock.now() + self._schedule.lifetime, *(key.expires_at for key in self._keys))

    async def listening_at(self, location: RouterLocation) -> None:
        """Set our address.

        SMP routers learn it together with a key, so a new address needs a new key. Raises StoreError.
        """
        self._address = location.text(Scheme.NTF)
        await self.rotate()

    async def rotate(self) -> None:
        """Create due keys and erase expired ones. Raises StoreError, which leaves the keys as they were."""
        async with self._rotating:
            while not await self._rotate():
                pass  # another process was first: its keys are used

    async def _rotate(self) -> bool:
        """Returns False if the stored keys have changed meanwhile."""
        stored = await self._store.direct_keys()
        known = None if stored is None else _read(stored)
        now = self._clock.now()
        keys = self._schedule.turned(
            [] if known is None else _packet_keys(known), now, self._randomness.new_dh_key
        )
        address = self._address or ("" if known is None else known.address)
        if (
            known is None
            or known.auth_key_at + self._settings.auth_key_rotation <= now
            or known.address not in ("", address)
        ):
            later = (
                0 if known is None else known.auth_key_at + 1
            )  # an older time would not replace the other key
            auth = AuthKey(Ed25519PrivateKey(self._randomness.new_code()), max(now, later))
        else:
            auth = AuthKey(Ed25519PrivateKey(known.auth_key), known.auth_key_at)
        new = _StoredKeys(
            [_StoredKey(key.private_key.raw, key.created_at, key.expires_at) for key in keys],
            auth.key.raw,
            auth.issued_at,
            address,
        )
        if new != known:
            if not await self._store.set_direct_keys(msgspec.msgpack.encode(new), stored):
                return False
            logger.info("rotated the keys for direct notifications: %d are in use", len(keys))
        self._keys, self.auth = keys, auth
        expiries = (key.expires_at for key in keys)
        self._due_at = min(keys[0].created_at + self._schedule.rotation, *expiries)
        return True


def _read(stored: bytes) -> _StoredKeys:
    try:
        return _CODER.decode(stored)
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise StoreError(
            "the stored keys for direct notifications are damaged: restore the store from a backup"
        ) from None


def _packet_keys(known: _StoredKeys) -> list[NtfKey]:
    return [
        NtfKey(X25519PrivateKey(key.private_key), key.created_at, key.expires_at) for key in known.packet_keys
    ]
