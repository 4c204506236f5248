"""The key that seals what is handed over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.handover_key import KEY_FILE, handover_key, read_handover_key


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
