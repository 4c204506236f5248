"""A fixture that notes every cryptographic call of a verification: what a refused command costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tocsin.crypto.boxes import authenticates
from tocsin.crypto.keys import Ed448PublicKey, Ed25519PublicKey, X25519PrivateKey
from tocsin.protocol import authorization


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every cryptographic call of a verification, in its order."""
    done: list[str] = []

    def note(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            done.append(name)
            return call(*args)

        return noted

    monkeypatch.setattr(Ed25519PublicKey, "verifies", note("Ed25519", Ed25519PublicKey.verifies))
    monkeypatch.setattr(Ed448PublicKey, "verifies", note("Ed448", Ed448PublicKey.verifies))
    monkeypatch.setattr(X25519PrivateKey, "agree", note("X25519", X25519PrivateKey.agree))
    monkeypatch.setattr(authorization, "authenticates", note("authenticator", authenticates))
    return done
