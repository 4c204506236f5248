"""The key that seals what is handed over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels.handover_key import (
    KEY_FILE,
    KEY_VARIABLE,
    handover_key,
    job_key,
    read_handover_key,
)
from tocsin.wire.base64url import encode_base64url


def test_the_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    with pytest.raises(ConfigError, match=KEY_FILE):
        read_handover_key(folder)
    key = handover_key(folder)
    assert handover_key(folder) == key == read_handover_key(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert os.listdir(folder) == [KEY_FILE]
    (folder / KEY_FILE).write_bytes(b"short")
    with pytest.raises(ConfigError, match="is not a hand-over key"):
        read_handover_key(folder)


def test_machines_without_a_shared_folder_have_the_key_in_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = handover_key(tmp_path / "keys")
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=f"set the environment variable {KEY_VARIABLE}"):
        job_key(None)
    for wrong, says in [("not base64!", "is not base64url"), ("AAAA", "must have 32 bytes")]:
        monkeypatch.setenv(KEY_VARIABLE, wrong)
        with pytest.raises(ConfigError, match=says):
            job_key(None)
    monkeypatch.setenv(KEY_VARIABLE, encode_base64url(key))
    assert job_key(None) == job_key(tmp_path / "keys") == key
