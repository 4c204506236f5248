from __future__ import annotations

import ctypes
import importlib.util
import struct
from importlib.machinery import ModuleSpec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.appendix_a import S
from tocsin.crypto import hsalsa20 as module
from tocsin.crypto.hsalsa20 import HSalsa20, hsalsa20, pure_python_hsalsa20


@pytest.mark.parametrize("function", [hsalsa20, pure_python_hsalsa20])
def test_hsalsa20_gives_the_values_of_appendix_a3(function: HSalsa20) -> None:
    assert function(bytes(range(32)), bytes(16)).hex() == (
        "50088706d3e1cee8a5c0f12504d968443211cf12af4a4b49e5c874b3ef4f85e7"
    )
    assert function(S, bytes(16)).hex() == "ec88f6e13b22bf9f04d480e0d8525c08ac7e2f48e212742bcbcafa104a74b08d"


@settings(max_examples=30)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=16, max_size=16))
def test_both_implementations_agree(key: bytes, block: bytes) -> None:
    assert hsalsa20(key, block) == pure_python_hsalsa20(key, block)


@pytest.mark.parametrize(("key", "block"), [(31, 16), (33, 16), (32, 15), (32, 17), (0, 0)])
def test_other_lengths_never_reach_the_library(key: int, block: int) -> None:
    with pytest.raises((ValueError, struct.error)):
        hsalsa20(bytes(key), bytes(block))


@pytest.mark.parametrize("found", [None, ModuleSpec("nacl._sodium", None)])
def test_without_libsodium_there_is_no_fast_version(
    found: ModuleSpec | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    assert module._libsodium_hsalsa20() is None


def test_a_library_that_does_not_load_is_no_fast_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise OSError(path)

    monkeypatch.setattr(ctypes, "PyDLL", refuse)
    assert module._libsodium_hsalsa20() is None
