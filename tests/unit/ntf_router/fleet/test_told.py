"""What instances tell each other survives being text."""

from __future__ import annotations

import pytest

from tocsin.ntf_router.fleet.told import (
    MOST_ROUTERS,
    MOST_TOKENS,
    CodeTold,
    LostTold,
    PendingTold,
    ReachedTold,
    RouterTold,
    Told,
    parse_told,
)
from tocsin.protocol.ntf.device_tokens import PushProvider

MOST_BYTES = 8000
"""PostgreSQL's limit of a notice."""


@pytest.mark.parametrize(
    "told",
    [
        *(PendingTold((b"t" * 24,), provider) for provider in PushProvider),
        PendingTold((b"t" * 24, bytes(24)), PushProvider.FCM, late=True),
        PendingTold((b"t" * 24,) * MOST_TOKENS, PushProvider.APNS_PROD),
        CodeTold(bytes(range(24))),
        RouterTold(b"\xff" * 32),
        ReachedTold(b"\xff" * 32, 7),
        LostTold((b"\xff" * 32,) * MOST_ROUTERS),
    ],
)
def test_a_notice_is_read_as_it_was_written(told: Told) -> None:
    assert parse_told(told.text()) == told
    assert len(told.text()) < MOST_BYTES


@pytest.mark.parametrize(
    "text",
    [
        *("", "push", "push fcm", "push fcm ####", "push none dHR0", "later dHR0", "code", "router a b"),
        *("reached YQ", "reached YQ b", "lost", "lost #"),
    ],
)
def test_a_notice_of_another_version_is_ignored(text: str) -> None:
    assert parse_told(text) is None
