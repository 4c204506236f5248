"""What instances tell each other survives being text."""

from __future__ import annotations

import pytest

from tocsin.ntf_router.fleet.told import CodeTold, PendingTold, RouterTold, Told, parse_told
from tocsin.protocol.ntf.device_tokens import PushProvider


@pytest.mark.parametrize(
    "told",
    [
        *(PendingTold(b"t" * 24, provider) for provider in PushProvider),
        PendingTold(b"t" * 24, PushProvider.FCM, late=True),
        CodeTold(bytes(range(24))),
        RouterTold(b"\xff" * 32),
    ],
)
def test_a_notice_is_read_as_it_was_written(told: Told) -> None:
    assert parse_told(told.text()) == told


@pytest.mark.parametrize("text", ["", "push", "push ####", "push dHR0 no_provider", "later dHR0", "code"])
def test_a_notice_of_another_version_is_ignored(text: str) -> None:
    assert parse_told(text) is None
