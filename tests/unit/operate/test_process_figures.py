from __future__ import annotations

import gc
import os
import platform
import sys

from tocsin.operate.process_figures import process_figures, python_version


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
