"""Keys that packets are sealed to: many at a time, each with an end."""

from __future__ import annotations

from itertools import count

import pytest

from tests.unit.protocol.direct.samples import OFFER
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.errors import DecodeError
from tocsin.protocol.direct.ntf_keys import DAY, KeySchedule, NtfKey, NtfKeyOffer
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

NOW = 1_800_000_000


def test_an_offer_is_read_back() -> None:
    out = WireWriter()
    OFFER.encode(out)
    assert NtfKeyOffer.decode(WireReader(out.done())) == OFFER


def test_an_id_of_another_key_is_refused() -> None:
    out = WireWriter().short_bytes(bytes(8)).short_bytes(OFFER.key.der).i64(1)
    with pytest.raises(DecodeError, match="id of an NTF key"):
        NtfKeyOffer.decode(WireReader(out.done()))


def test_a_year_of_turning() -> None:
    numbers = count(1)
    schedule = KeySchedule()
    keys: tuple[NtfKey, ...] = ()
    made: dict[bytes, int] = {}
    for hour in range(365 * 24):
        now = NOW + hour * 3600
        keys = schedule.turned(keys, now, lambda: X25519PrivateKey(bytes([next(numbers)]) * 32))
        for key in keys:
            made.setdefault(key.offer.key_id, now)
            assert key.expires_at > now
        assert keys[0].created_at + schedule.rotation > now
        # Whoever fetched the key at any time in the last three weeks can still use it.
        assert keys[0].expires_at - now >= schedule.lifetime - schedule.rotation
        assert len(keys) <= 5
    assert 52 <= len(made) <= 53


def test_after_a_long_sleep_there_is_one_new_key() -> None:
    old = NtfKey(X25519PrivateKey(b"\x01" * 32), NOW - 90 * DAY, NOW - 60 * DAY)
    [key] = KeySchedule().turned([old], NOW, lambda: X25519PrivateKey(b"\x02" * 32))
    assert key.private_key.raw == b"\x02" * 32


@pytest.mark.parametrize(("lifetime", "rotation"), [(1, 1), (1, 2), (1, 0)])
def test_keys_must_overlap(lifetime: int, rotation: int) -> None:
    with pytest.raises(ValueError, match="live longer"):
        KeySchedule(lifetime, rotation)


def test_private_keys_are_not_shown() -> None:
    key = NtfKey(X25519PrivateKey(b"secret!!" * 4), 1, 2)
    assert "secret" not in repr(key)
