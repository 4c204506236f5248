"""Default folders of an SMP router, and the address that its settings give it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tocsin.operate.router_files import address_of
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.smp_router.settings.settings import SmpSettings

DEFAULT_FOLDER: Final = Path("/etc/opt/simplex")
DEFAULT_STORE: Final = Path("/var/opt/simplex")


def router_address(settings: SmpSettings, fingerprint: bytes, *, with_password: bool) -> RouterAddress:
    """Raises ConfigError if the settings do not name the router's host."""
    password = settings.create_password if with_password else None
    return address_of(Scheme.SMP, settings.public_hosts, settings.ports, fingerprint, password)
