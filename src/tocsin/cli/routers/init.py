"""`tocsin smp|ntf init`: creates the certificates and settings of a new router."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic

from tocsin.cli.routers.cert import add_algorithm_argument
from tocsin.cli.routers.router_kind import RouterKind, S, add_folder_argument
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.errors import ConfigError
from tocsin.operate.router_files import CREDENTIAL_FILES, make_router, refuse_existing_router
from tocsin.transport.credential_files import AUTHORITY_KEY

SUMMARY: Final = "create certificates and settings for a new router"
DESCRIPTION: Final = (
    "Creates an offline certificate authority, whose fingerprint is the router's identity, a TLS certificate, and a "
    "commented settings file with every key. Existing files are never overwritten. Prints the router's address."
)
MOVE_AUTHORITY_KEY: Final = (
    f"Move {AUTHORITY_KEY} offline: it is only needed to renew certificates, and anyone who has it can impersonate "
    "this router."
)
EVENT_LOG_BYTES: Final = 1024**3
"""The size of a new router's event log: about five million events. The oldest are deleted first."""
_FORMATS: Final = ("ini", "toml")


@dataclass(frozen=True, slots=True)
class NewRouter(Generic[S]):
    file: Path
    settings: S
    fingerprint: bytes
    summary: str
    event_log: str

    def print_summary(self) -> None:
        print(self.summary)
        print(self.event_log)
        print(MOVE_AUTHORITY_KEY)


def add_arguments(
    parser: argparse.ArgumentParser, kind: RouterKind[S], *, port: int, algorithm: CertificateAlgorithm
) -> None:
    parser.add_argument(
        "--port",
        default=str(port),
        metavar="PORT",
        help=f"port to listen on; separate several with commas (default: {port})",
    )
    add_folder_argument(parser, kind)
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help=f"folder for logs and data (default: {kind.default_store_help})",
    )
    add_algorithm_argument(
        parser, f"algorithm of the certificates (default: {algorithm.value})", algorithm.value
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="ini",
        help="format of the settings file (default: ini, which the reference reads too)",
    )
    parser.add_argument(
        "--no-event-log",
        action="store_true",
        help="write no delivery events, which trace notifications by pseudonyms that change daily",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be created, without creating it"
    )


def create_router(
    options: argparse.Namespace, kind: RouterKind[S], values: Mapping[str, str]
) -> NewRouter[S] | None:
    """Create the files and the store's folder; `values` go into the settings, by their names in INI.

    Returns None after a dry run. Raises ConfigError.
    """
    files = kind.settings
    folder: Path = options.folder or files.default_folder
    store: Path = options.store or files.default_store
    files.checked_value("TRANSPORT", "port", options.port, "--port")
    refuse_existing_router(folder, files.ini_file, files.toml_file)
    toml = options.format == "toml"
    settings_file = files.toml_file if toml else files.ini_file
    created = ", ".join((*CREDENTIAL_FILES, settings_file))
    if options.dry_run:
        print(f"Would create in {folder}: {created}")
        return None
    values = {**values, "port": options.port, "store_path": str(store.absolute())}
    events = store.absolute() / "events"
    said = "No delivery event log: set event_log in the settings to be able to trace notifications."
    if not options.no_event_log:
        values |= {"event_log": str(events), "event_log_bytes": str(EVENT_LOG_BYTES)}
        said = f"Delivery events go to {events}, at most {EVENT_LOG_BYTES // 1024**3} GiB: see `tocsin pipeline init`."
    host = values["host"].partition(",")[0]
    algorithm = CertificateAlgorithm(options.algorithm)
    fingerprint = make_router(folder, settings_file, files.new_file(values, toml=toml), host, algorithm)
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{store} cannot be created: {error.strerror}. Create it yourself, or name another folder in "
            f"{folder / settings_file}, key store_path"
        ) from error
    settings = files.load(folder / settings_file, {})
    return NewRouter(folder / settings_file, settings, fingerprint, f"Created in {folder}: {created}", said)
