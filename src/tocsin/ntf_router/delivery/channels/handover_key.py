"""The key that seals what routers hand over to Spark, and the file in which it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tocsin.crypto.boxes import BoxKey
from tocsin.errors import ConfigError, DecodeError
from tocsin.events.private_files import make_private_once
from tocsin.events.pseudonyms import keys_folder
from tocsin.wire.base64url import decode_base64url

KEY_BYTES: Final = 32
KEY_FILE: Final = "handover.key"
KEY_VARIABLE: Final = "TOCSIN_HANDOVER_KEY"
"""The environment variable with the key in base64url, for machines that share no folder."""


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


def job_key(folder: Path | None) -> BoxKey:
    """Return the key in a folder of this machine, or that of the environment. Raises ConfigError."""
    return environment_key() if folder is None else read_handover_key(folder)


def environment_key() -> BoxKey:
    """Return the key in the environment. Raises ConfigError if the variable is not set, or is no key."""
    text = os.environ.get(KEY_VARIABLE)
    if text is None:
        raise ConfigError(
            f"no hand-over key: name its folder on this machine (delivery_handover_keys, or --handover-keys), or set "
            f"the environment variable {KEY_VARIABLE} to the key in base64url"
        )
    try:
        key = decode_base64url(text)
    except DecodeError as error:
        raise ConfigError(f"{KEY_VARIABLE} is not base64url") from error
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{KEY_VARIABLE} is not a hand-over key: it must have {KEY_BYTES} bytes")
    return BoxKey(key)


def handover_keys(folder: Path, chosen: Path | None) -> Path:
    """Return the folder of the key. It is outside the hand-over folder, so that a copy of that folder has no key."""
    return keys_folder(folder, chosen)
