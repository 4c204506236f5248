"""`tocsin ntf delete`: removes everything that `init` and `start` created."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.cli.terminal.exit_codes import ExitCode
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
    "Deletes the router's certificates, settings and data after asking. Its address can never be used again, and its "
    "devices get no pushes until they register with another router. Files that are not the router's stay, and so does "
    "the operator's PostgreSQL."
)
EXAMPLE = "tocsin ntf delete --dry-run"

EMBEDDED_DATABASE: Final = "postgres"
_DATA: Final = ("ntf-server-*", "ntf-server.*", EMBEDDED_DATABASE)
_WARNING: Final = (
    "WARNING: deleting the server will make all queues inaccessible, because the server identity (certificate "
    "fingerprint) will change.\nTHIS CANNOT BE UNDONE!"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_router_arguments(parser, NTF)
    parser.add_argument("--dry-run", action="store_true", help="list what would be deleted; delete nothing")


def run(options: argparse.Namespace) -> int:
    settings, file = NTF.load_settings(options), NTF.settings_file(options)
    files = list(_files(settings, file))
    if options.dry_run:
        for path in files:
            print(f"Would delete {path}")
        return ExitCode.OK
    print(_WARNING)
    try:
        answer = input("Continue (Y/n): ")
    except EOFError:
        answer = ""
    if answer != "Y":
        print("Server NOT deleted")
        return ExitCode.WRONG
    _refuse_while_running(settings)
    for path in files:
        _remove(path)
    for folder in dict.fromkeys(
        [
            *_event_folders(settings),
            *_handover_folders(settings),
            settings.store,
            settings.credentials,
            file.parent,
        ]
    ):
        if folder is not None and folder.is_dir():
            _remove_folder(folder)
    print("Deleted configuration and log files")
    return ExitCode.OK


def _refuse_while_running(settings: NtfSettings) -> None:
    """Raises StoreError."""
    if settings.store is not None and (settings.store / LOCK).exists():
        FolderLock(settings.store / LOCK).release()


def _event_folders(settings: NtfSettings) -> list[Path]:
    """The folders of events and of the keys of their pseudonyms."""
    if settings.event_log is None:
        return []
    return [settings.event_log, keys_folder(settings.event_log, settings.event_log_keys)]


def _handover_folders(settings: NtfSettings) -> list[Path]:
    """The folders of due pushes, of their outcomes, and of the key unless the settings name its folder."""
    folder, keys = settings.delivery.handover, settings.delivery.handover_keys
    if folder is None:
        return []
    return [folder / OUTCOMES, folder, *([keys_folder(folder, None)] if keys is None else [])]


def _files(settings: NtfSettings, settings_file: Path) -> Iterator[Path]:
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
    if key_file.parent in (settings_file.parent, settings.store) and key_file.exists():
        yield key_file
    yield settings_file


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be deleted: {error.strerror}. Fix its permissions and run the command again"
        ) from error


def _remove_folder(folder: Path) -> None:
    left = sorted(os.listdir(folder))
    if left:
        print(f"Kept {folder}: it contains {', '.join(left[:5])}{' and more' if len(left) > 5 else ''}")
        return
    try:
        folder.rmdir()
    except OSError as error:
        print(f"Kept {folder}: {error.strerror}")
