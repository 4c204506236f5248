"""The key that seals what routers hand over to Spark, and the file in which it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tocsin.crypto.boxes import BoxKey
from tocsin.errors import ConfigError
from tocsin.events.private_files import make_private_once
from tocsin.events.pseudonyms import keys_folder

KEY_BYTES: Final = 32
KEY_FILE: Final = "handover.key"


def handover_key(folder: Path) -> BoxKey:
    """Return the key, which the first router creates in one step. Raises OSError or ConfigError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private_once(folder / KEY_FILE, os.urandom(KEY_BYTES))
    return read_handover_key(folder)


def read_handover_key(folder: Path) -> BoxKey:
    """Read the key that the router created at its start. Raises ConfigError if there is none."""
    path = folder / KEY_FILE
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the hand-over key {path}: {error.strerror}; start the router first, which creates it"
        ) from error
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} is not a hand-over key: it must have {KEY_BYTES} bytes")
    return BoxKey(key)


def handover_keys(folder: Path, chosen: Path | None) -> Path:
    """Return the folder of the key. It is outside the hand-over folder, so that a copy of that folder has no key."""
    return keys_folder(folder, chosen)
