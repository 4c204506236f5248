"""The key that seals what a router hands over to the `deliver` job: a file for its owner, in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tocsin.crypto.boxes import BoxKey
from tocsin.errors import ConfigError
from tocsin.events.private_files import make_private_once

KEY_BYTES: Final = 32
KEY_FILE: Final = "handover.key"


def handover_key(folder: Path) -> BoxKey:
    """Made by whichever router is first; none sees half of one. Raises OSError or ConfigError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private_once(folder / KEY_FILE, os.urandom(KEY_BYTES))
    return read_handover_key(folder)


def read_handover_key(folder: Path) -> BoxKey:
    """Raises ConfigError if there is none yet: the router makes it at its start."""
    path = folder / KEY_FILE
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the key of hand-overs cannot be read: {path}: {error.strerror}") from error
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} holds no key of hand-overs")
    return BoxKey(key)
