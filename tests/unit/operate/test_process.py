"""Signals that stop a program, and figures of its process."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import signal
import sys

import pytest

from tocsin.operate.process import STOP_SIGNALS, process_figures, python_version, stop_signals


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


def test_figures_of_this_process_are_plausible() -> None:
    figures = process_figures()
    assert figures["cpu_user_seconds"] > 0
    assert figures["peak_memory_bytes"] > 10_000_000
    assert figures["threads"] >= 1
    if sys.platform == "linux":
        assert 10_000_000 < figures["resident_memory_bytes"] <= figures["peak_memory_bytes"] * 1.1
        assert figures["open_descriptors"] >= 3


def test_open_descriptors_are_counted() -> None:
    if sys.platform != "linux":
        return
    before = process_figures()["open_descriptors"]
    opened = os.open(os.devnull, os.O_RDONLY)
    try:
        assert process_figures()["open_descriptors"] == before + 1
    finally:
        os.close(opened)


def test_garbage_collections_are_counted() -> None:
    before = process_figures()["gc_generation_2_collections"]
    gc.collect()
    assert process_figures()["gc_generation_2_collections"] == before + 1


def test_the_version_of_python_is_named() -> None:
    assert platform.python_version() in python_version()
