"""Shared by tests of processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def without_nohup() -> Iterator[None]:
    """The tests may run under `nohup`, which ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
