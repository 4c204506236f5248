"""Finds the routers and tables to examine: those that the operator names, or those in the default folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tocsin.errors import ConfigError
from tocsin.ntf_router.settings.files import NTF_FILE
from tocsin.operate.settings.router_settings import RouterSettings
from tocsin.pipeline.lake.status_files import DEFAULT_LAKE
from tocsin.push.fake.server import CERTIFICATE_FILE
from tocsin.smp_router.settings.files import SMP_FILE

Kind = Literal["smp", "ntf"]
KINDS: Final[tuple[Kind, ...]] = ("smp", "ntf")
UP_FOLDER: Final = Path("tocsin-up")
_UP_HOST: Final = "127.0.0.1"
_PORTS: Final = "ports.json"


@dataclass(frozen=True, slots=True)
class FoundRouter:
    kind: Kind
    file: Path
    """The settings file."""
    overrides: tuple[str, ...] = ()
    """Settings that override the file, as after `--set`."""

    @property
    def name(self) -> str:
        return f"{self.kind.upper()} router"

    @property
    def settings(self) -> RouterSettings[Any]:
        return _settings_of(self.kind)


def _settings_of(kind: Kind) -> RouterSettings[Any]:
    return SMP_FILE if kind == "smp" else NTF_FILE


@dataclass(frozen=True, slots=True)
class Installation:
    routers: tuple[FoundRouter, ...]
    lake: Path | None


@dataclass(frozen=True, slots=True)
class NamedPlaces:
    """Places that the operator names on the command line."""

    folders: Sequence[Path] = ()
    """Folders of routers, as in `tocsin smp init --folder`, or of `tocsin up`."""
    smp_config: Path | None = None
    ntf_config: Path | None = None
    lake: Path | None = None


def find_installation(named: NamedPlaces) -> Installation:
    """Raises ConfigError if there is nothing to examine."""
    found = [_installation_in(folder) for folder in named.folders]
    routers = [router for each in found for router in each.routers]
    if named.smp_config is not None:
        routers.append(FoundRouter("smp", SMP_FILE.find_file(named.smp_config)))
    if named.ntf_config is not None:
        routers.append(FoundRouter("ntf", NTF_FILE.find_file(named.ntf_config)))
    lake = named.lake or next((each.lake for each in found if each.lake is not None), None)
    if not routers and lake is None:
        routers = [router for kind in KINDS if (router := _default_router(kind)) is not None]
        if not routers and (UP_FOLDER / _PORTS).exists():
            return _up_installation(UP_FOLDER)
    if not routers and lake is None:
        raise ConfigError(
            f"found no installation in {SMP_FILE.default_folder}, {NTF_FILE.default_folder} or ./{UP_FOLDER}: name "
            "one with --folder, --smp-config, --ntf-config or --lake"
        )
    return Installation(tuple(routers), lake or (DEFAULT_LAKE if DEFAULT_LAKE.is_dir() else None))


def _installation_in(folder: Path) -> Installation:
    """Raises ConfigError if the folder is neither a router's nor one of `tocsin up`."""
    if (folder / _PORTS).exists():
        return _up_installation(folder)
    files = [(kind, _settings_of(kind).find_file(folder)) for kind in KINDS] if folder.is_dir() else []
    found = [FoundRouter(kind, file) for kind, file in files if file.exists()]
    if not found:
        raise ConfigError(
            f"{folder} has no settings of a router: create one with `tocsin smp init` or `tocsin ntf init`, or name "
            "another folder with --folder"
        )
    return Installation(tuple(found), None)


def _default_router(kind: Kind) -> FoundRouter | None:
    settings = _settings_of(kind)
    folder = settings.default_folder
    if not folder.is_dir() or not os.access(folder, os.X_OK):
        return None
    file = settings.find_file(folder)
    return FoundRouter(kind, file) if file.exists() else None


def _up_installation(folder: Path) -> Installation:
    """`tocsin up` passes settings to its routers in their environment. Raises ConfigError."""
    folder = folder.absolute()
    try:
        ports = msgspec.json.decode((folder / _PORTS).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{folder} is not a folder of `tocsin up`: {_PORTS} is unreadable. Run `tocsin up --folder {folder}` first"
        ) from error
    routers = []
    for kind in KINDS:
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
        routers.append(FoundRouter(kind, _settings_of(kind).find_file(folder / kind / "etc"), overrides))
    return Installation(tuple(routers), folder / "lake")
