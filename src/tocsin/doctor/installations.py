"""Which routers and tables the doctor looks at: those named, or those in the usual places."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from tocsin.errors import ConfigError
from tocsin.ntf_router.settings import files as ntf_ini
from tocsin.ntf_router.settings import locations as ntf_locations
from tocsin.operate.settings.locations import found_file
from tocsin.pipeline.lake.status_files import DEFAULT_LAKE
from tocsin.push.fake.server import CERTIFICATE_FILE
from tocsin.smp_router.settings import files as smp_ini
from tocsin.smp_router.settings import files as smp_locations

Kind = Literal["smp", "ntf"]
UP_FOLDER: Final = Path("tocsin-up")
_UP_HOST: Final = "127.0.0.1"
_PORTS: Final = "ports.json"


@dataclass(frozen=True, slots=True)
class FoundRouter:
    kind: Kind
    file: Path
    """Of its settings."""
    overrides: tuple[str, ...] = ()
    """As after `--set`: what whoever started it gave besides the file."""

    @property
    def name(self) -> str:
        return f"{self.kind.upper()} router"


@dataclass(frozen=True, slots=True)
class Installation:
    routers: tuple[FoundRouter, ...]
    lake: Path | None


def find_installation(
    smp_config: Path | None, ntf_config: Path | None, up: Path | None, lake: Path | None
) -> Installation:
    """Raises ConfigError if there is nothing to look at."""
    named = [_named("smp", smp_config), _named("ntf", ntf_config)]
    if up is not None:
        return _up_installation(up, lake)
    routers = tuple(router for router in named if router is not None)
    if not routers and lake is None:
        usual = (_usual("smp"), _usual("ntf"))
        routers = tuple(router for router in usual if router is not None)
        if not routers and (UP_FOLDER / _PORTS).exists():
            return _up_installation(UP_FOLDER, None)
    if not routers and lake is None:
        raise ConfigError(
            f"there is no installation in {smp_locations.DEFAULT_FOLDER}, {ntf_locations.config_folder()} "
            f"or ./{UP_FOLDER}: name one with --smp-config, --ntf-config, --up or --lake"
        )
    return Installation(routers, lake or (DEFAULT_LAKE if DEFAULT_LAKE.is_dir() else None))


def _named(kind: Kind, config: Path | None) -> FoundRouter | None:
    if config is None:
        return None
    return FoundRouter(kind, _file(kind, config))


def _usual(kind: Kind) -> FoundRouter | None:
    folder = smp_locations.DEFAULT_FOLDER if kind == "smp" else ntf_locations.config_folder()
    file = _file(kind, folder) if folder.is_dir() and os.access(folder, os.X_OK) else None
    return FoundRouter(kind, file) if file is not None and file.exists() else None


def _file(kind: Kind, config: Path) -> Path:
    module = smp_ini if kind == "smp" else ntf_ini
    return found_file(config, config, module.INI_FILE, module.TOML_FILE)


def _up_installation(folder: Path, lake: Path | None) -> Installation:
    """`tocsin up` gives its routers settings in their environment. Raises ConfigError."""
    folder = folder.absolute()
    try:
        ports = msgspec.json.decode((folder / _PORTS).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{folder} is no folder of `tocsin up`: {_PORTS} cannot be read") from error
    routers = []
    kinds: tuple[Kind, ...] = ("smp", "ntf")
    for kind in kinds:
        metrics = ports.get("metrics" if kind == "ntf" else "smp_metrics", 0)
        chosen: dict[str, object] = {
            "port": ports.get(kind, 0),
            "listen": _UP_HOST,
            "event_log": folder / f"{kind}-events",
            "event_log_keys": folder / "pseudonym-keys",
            "event_log_segment_seconds": 1,
            "prometheus_port": metrics or "off",
        }
        if kind == "ntf":
            chosen |= {
                "apns_test_host": "localhost",
                "apns_test_port": ports.get("push", 0),
                "apns_test_ca_file": folder / "push" / CERTIFICATE_FILE,
                "apns_prod_host": "off",
                "apns_dev_host": "off",
                "allow_private_hosts": "on",
            }
        overrides = tuple(f"{name}={value}" for name, value in chosen.items())
        routers.append(FoundRouter(kind, _file(kind, folder / kind / "etc"), overrides))
    return Installation(tuple(routers), lake or folder / "lake")
