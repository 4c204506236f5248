"""Default folders of an NTF router, its credentials, and the address that its settings give it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tocsin.crypto.credentials import Credentials
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.operate.router_files import address_of
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.transport.credential_files import read_credentials

FOLDER_VARIABLE: Final = "NTF_SERVER_CFG_PATH"
STORE_VARIABLE: Final = "NTF_SERVER_LOG_PATH"
DEFAULT_FOLDER: Final = Path("/etc/opt/simplex-notifications")
DEFAULT_STORE: Final = Path("/var/opt/simplex-notifications")


def config_folder() -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)


def store_folder() -> Path:
    return Path(os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)


def credentials_of(settings: NtfSettings) -> Credentials:
    return read_credentials(
        settings.credentials,
        certificate_file=settings.certificate_file,
        key_file=settings.private_key_file,
        authority_file=settings.authority_file,
    )


def router_address(settings: NtfSettings, fingerprint: bytes) -> RouterAddress:
    """Raises ConfigError if the settings do not name the router's host."""
    return address_of(Scheme.NTF, settings.public_hosts, settings.ports, fingerprint)
