"""`tocsin ntf delete`: removes everything that `init` and `start` made."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tocsin.cli.ntf.files import add_config_argument, config_file, settings_of
from tocsin.durable.log_files import FolderLock
from tocsin.errors import ConfigError
from tocsin.events.event_log import OPEN_PREFIX, OUTCOMES, PUBLISHED, SEGMENTS
from tocsin.events.pseudonyms import KEY_SUFFIX, keys_folder
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.store.logs.log_reading import LOCK
from tocsin.operate.router_files import CREDENTIAL_FILES

NAME = "delete"
SUMMARY = "delete the router with all its data"
DESCRIPTION = (
    "Deletes the router's certificates, settings and data folder. It asks first: its address can never be used again, "
    "and devices get no pushes until they register elsewhere. Files that are not the router's stay. An operator's "
    "own PostgreSQL is not touched."
)
EXAMPLE = "tocsin ntf delete --dry-run"

EMBEDDED_DATABASE: Final = "postgres"
_DATA: Final = ("ntf-server-*", "ntf-server.*", EMBEDDED_DATABASE)
_WARNING: Final = (
    "WARNING: deleting the server will make all queues inaccessible, because the server identity (certificate "
    "fingerprint) will change.\nTHIS CANNOT BE UNDONE!"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="tell what would be deleted")


def run(options: argparse.Namespace) -> int:
    settings, ini = settings_of(options), config_file(options)
    doomed = list(_files(settings, ini))
    if options.dry_run:
        for path in doomed:
            print(f"would delete {path}")
        return 0
    print(_WARNING)
    try:
        answer = input("Continue (Y/n): ")
    except EOFError:
        answer = ""
    if answer != "Y":
        print("Server NOT deleted")
        return 1
    _refuse_while_running(settings)
    for path in doomed:
        _remove(path)
    for folder in dict.fromkeys(
        [
            *_event_folders(settings),
            *_handover_folders(settings),
            settings.store,
            settings.credentials,
            ini.parent,
        ]
    ):
        if folder is not None and folder.is_dir():
            _remove_folder(folder)
    print("Deleted configuration and log files")
    return 0


def _refuse_while_running(settings: NtfSettings) -> None:
    """Raises StoreError."""
    if settings.store is not None and (settings.store / LOCK).exists():
        FolderLock(settings.store / LOCK).release()


def _event_folders(settings: NtfSettings) -> list[Path]:
    """Of events, and of the keys of their pseudonyms."""
    if settings.event_log is None:
        return []
    return [settings.event_log, keys_folder(settings.event_log, settings.event_log_keys)]


def _handover_folders(settings: NtfSettings) -> list[Path]:
    """Of due pushes, of their outcomes, and of the key, unless it has a place where other routers may share it."""
    folder, keys = settings.delivery.handover, settings.delivery.handover_keys
    if folder is None:
        return []
    return [folder / OUTCOMES, folder, *([keys_folder(folder, None)] if keys is None else [])]


def _files(settings: NtfSettings, ini: Path) -> Iterator[Path]:
    for folder in (*_event_folders(settings), *_handover_folders(settings)):
        for pattern in (PUBLISHED, SEGMENTS, f"{OUTCOMES}-*", f"{OPEN_PREFIX}*", f"*{KEY_SUFFIX}"):
            yield from sorted(folder.glob(pattern))
    if settings.store is not None:
        for pattern in _DATA:
            yield from sorted(settings.store.glob(pattern))
    for name in CREDENTIAL_FILES:
        if (settings.credentials / name).exists():
            yield settings.credentials / name
    key_file = settings.webpush.key_file
    if key_file.parent in (ini.parent, settings.store) and key_file.exists():
        yield key_file
    yield ini


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be deleted: {error.strerror}") from error


def _remove_folder(folder: Path) -> None:
    left = sorted(os.listdir(folder))
    if left:
        print(f"{folder} stays: it has {', '.join(left[:5])}{' and more' if len(left) > 5 else ''}")
        return
    try:
        folder.rmdir()
    except OSError as error:
        print(f"{folder} stays: {error.strerror}")
