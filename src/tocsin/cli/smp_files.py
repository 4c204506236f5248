"""What the commands of an SMP router share: where its files are, and its address."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from tocsin.config.smp_ini import INI_FILE, load_smp_settings
from tocsin.config.smp_settings import SmpSettings
from tocsin.crypto.credentials import CertificateAlgorithm
from tocsin.errors import ConfigError, DecodeError
from tocsin.protocol.addresses import DEFAULT_PORTS, RouterAddress, RouterLocation, Scheme, parse_host

DEFAULT_FOLDER: Final = Path("/etc/opt/simplex")
DEFAULT_STORE: Final = Path("/var/opt/simplex")
ALGORITHMS: Final = tuple(algorithm.value for algorithm in CertificateAlgorithm)


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        default=DEFAULT_FOLDER / INI_FILE,
        metavar="FILE",
        help=f"the router's settings (default {DEFAULT_FOLDER / INI_FILE})",
    )


def settings_of(options: argparse.Namespace) -> SmpSettings:
    """From the file of `--config` and the environment."""
    path: Path = options.config
    return load_smp_settings(path, os.environ)


def router_address(settings: SmpSettings, fingerprint: bytes, *, with_password: bool) -> RouterAddress:
    """Raises ConfigError if the settings do not name the router's host."""
    if not settings.public_hosts:
        raise ConfigError("[TRANSPORT] host is not set: the router's address needs it")
    try:
        hosts = tuple(parse_host(host) for host in settings.public_hosts)
    except DecodeError as error:
        raise ConfigError(f"[TRANSPORT] host: {error}") from error
    usual = DEFAULT_PORTS[Scheme.SMP] in settings.ports
    location = RouterLocation(hosts, "" if usual else str(settings.ports[0]), fingerprint)
    return RouterAddress(Scheme.SMP, location, settings.create_password if with_password else None)
