"""Signals that stop a program."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tocsin.operate.process import STOP_SIGNALS, stop_signals


@pytest.mark.usefixtures("without_nohup")
@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_a_signal_is_a_request(number: signal.Signals) -> None:
    with stop_signals() as requested:
        os.kill(os.getpid(), number)
        async with asyncio.timeout(5):
            await requested.wait()


async def test_an_ignored_signal_stays_ignored() -> None:
    """`nohup` lets a program go on when its terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as requested:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not requested.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
