"""Notifiers without a key."""

from __future__ import annotations

from dataclasses import replace

from tests.doubles.smp_direct import NtfIdentity, Wish
from tests.doubles.smp_harness import ed25519
from tests.unit.smp_router.store.samples import a_notifier, a_queue
from tocsin.crypto.keys import Ed25519PublicKey, auth_key_from_der
from tocsin.operate.randomness import SystemRandomness
from tocsin.smp_router.direct.keyless_notifiers import is_keyless, make_keyless_notifier
from tocsin.smp_router.store.logs.store_log import CreateQueueLine, decode_store_log_line


def test_a_keyless_notifier_has_the_id_that_was_asked_for_and_a_key_like_any_other() -> None:
    wish = Wish(NtfIdentity().location)
    notifier, dh_key = make_keyless_notifier(wish.subscription, SystemRandomness())
    assert notifier.notifier_id == wish.notifier_id
    assert notifier.dh_secret == wish.dh_key.agree(dh_key)
    assert isinstance(auth_key_from_der(notifier.key), Ed25519PublicKey)
    assert is_keyless(notifier)
    record = CreateQueueLine(replace(a_queue(), notifier=notifier))
    assert decode_store_log_line(record.encode()) == record


def test_others_are_not_taken_for_one() -> None:
    one, other = (
        make_keyless_notifier(Wish(NtfIdentity().location).subscription, SystemRandomness())[0]
        for _ in range(2)
    )
    assert not is_keyless(replace(one, key=other.key))
    assert not is_keyless(replace(one, key=ed25519().public.der))
    assert not is_keyless(a_notifier())
