"""A router for an external test suite, configured by `EXT_…` variables: `python -m tools.external_router smp|ntf`.

A suite that was written for another server starts that server with settings of its own, on files of its own choice, and
reads these files when the server has stopped. This program takes the same settings as environment variables
(tests/interop/README.md lists them), says on standard output where it listens, and stops at SIGTERM. A variable that it
does not know is an error, so that no test passes for want of its setting.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from tocsin.errors import TocsinError

PREFIX: Final = "EXT_"
HOST: Final = "127.0.0.1"
USAGE: Final = "python -m tools.external_router smp|ntf"
SMP_FILES: Final = {
    "STORE_LOG": "smp-server-store.log",
    "STORE_MSGS": "smp-server-messages.log",
    "STORE_NTFS": "smp-server-ntfs.log",
}
"""Names of the files in the folder of our router, by the variables that name the suite's files."""
SWITCHES: Final = {"on": True, "off": False, "1": True, "0": False}

STORES: Final = ("memory", "journal", "postgres")
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")

Convert: TypeAlias = Callable[[str], Any]


class BadVariable(Exception):
    """A variable is unknown, or its value cannot be used."""


def switch(text: str) -> bool:
    return SWITCHES[text.lower()]


def one_of(choices: tuple[str, ...]) -> Convert:
    return lambda text: choices[choices.index(text)]


def microseconds(text: str) -> float:
    return int(text) / 1_000_000


def nothing_if_off(text: str) -> str | None:
    return None if text.lower() == "off" else text


SMP_VARIABLES: Final[dict[str, tuple[str, Convert]]] = {
    "VMIN": ("lowest_version", int),
    "VMAX": ("highest_version", int),
    "QUOTA": ("message_quota", int),
    "ALLOW_NEW": ("new_queues", switch),
    "BASIC_AUTH": ("create_password", nothing_if_off),
    "CONTROL_PORT": ("control_port", int),
    "CONTROL_USER": ("control_port_user_password", str),
    "CONTROL_ADMIN": ("control_port_admin_password", str),
    "BLOCK_QUOTA": ("daily_block_queue_quota", int),
    "MSG_TTL": ("message_ttl", float),
    "MSG_CHECK": ("message_expiry_interval", float),
    "EXPIRE_ON_START": ("expire_messages_on_start", switch),
    "EXPIRE_ON_SEND": ("expire_messages_on_send", switch),
    "NTF_TTL": ("notification_ttl", float),
    "NTF_CHECK": ("notification_expiry_interval", float),
    "STATS_BACKUP": ("statistics_file", lambda text: Path(text) if nothing_if_off(text) else None),
    "END_INTERVAL": ("end_interval", microseconds),
    "NTF_INTERVAL": ("notification_interval", microseconds),
    "ASK_CERT": ("accept_service_credentials", switch),
    "PROXY": ("proxy.enabled", switch),
    "PROXY_ERROR_INTERVAL": ("proxy.remember_failure", float),
    "CLIENT_CONCURRENCY": ("proxy.client_concurrency", int),
    "PROMETHEUS_INTERVAL": ("prometheus_interval", float),
    "PROMETHEUS_FILE": ("prometheus_file", Path),
}
NTF_VARIABLES: Final[dict[str, tuple[str, Convert]]] = {
    "VMIN": ("lowest_version", int),
    "VMAX": ("highest_version", int),
    "DB_SCHEMA": ("database_schema", str),
    "SERVICE_CREDS": ("subscriber.use_service_credentials", switch),
    "PERIODIC_INTERVAL": ("periodic_interval", float),
    "SMP_VMIN": ("subscriber.lowest_version", int),
    "SMP_VMAX": ("subscriber.highest_version", int),
}
COMMON: Final = ("PORT", "CREDENTIALS", "DB", "DIRECT", "LOG_LEVEL")
SPECIAL: Final = {
    "smp": (*COMMON, "STORE", *SMP_FILES, "ALPN", "WORKERS"),
    "ntf": (*COMMON, "STORE_LOG", "APNS_PORT", "APNS_CA"),
}


def variables_of(environment: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return the values of our variables, without their prefix. Raises BadVariable for one that is not known."""
    known = {*(SMP_VARIABLES if kind == "smp" else NTF_VARIABLES), *SPECIAL[kind]}
    found = {name.removeprefix(PREFIX): text for name, text in environment.items() if name.startswith(PREFIX)}
    for name in sorted(set(found) - known):
        raise BadVariable(
            f"{PREFIX}{name} is not known to the {kind.upper()} router: see tests/interop/README.md"
        )
    if "CREDENTIALS" not in found:
        raise BadVariable(
            f"{PREFIX}CREDENTIALS is not set: name the folder of ca.crt, server.crt and server.key"
        )
    return found


def converted(
    found: Mapping[str, str], table: Mapping[str, tuple[str, Convert]]
) -> dict[str, dict[str, Any]]:
    """Return the values of settings by their names, those of a part (`proxy.enabled`) under the part's name."""
    values: dict[str, dict[str, Any]] = {"": {}}
    for name, (setting, convert) in table.items():
        if name in found:
            part, _, field = setting.rpartition(".")
            values.setdefault(part, {})[field] = value_of(found, name, convert)
    return values


def value_of(found: Mapping[str, str], name: str, convert: Convert, default: str | None = None) -> Any:
    """Return the value of one variable. Raises BadVariable if it cannot be used."""
    text = found[name] if default is None else found.get(name, default)
    try:
        return convert(text)
    except (KeyError, ValueError):
        raise BadVariable(f"{PREFIX}{name}: {text!r} cannot be used: see tests/interop/README.md") from None


class SuiteFiles:
    """The files of a suite, and a folder with copies of them under the names that our router gives them."""

    def __init__(self, found: Mapping[str, str]) -> None:
        named = {name: text for name in SMP_FILES if (text := nothing_if_off(found.get(name, "off")))}
        self.folder: Path | None = None
        self._files: dict[Path, Path] = {}
        if "STORE_LOG" not in named:
            return
        log = Path(named["STORE_LOG"])
        self.folder = log.with_name(f"{log.name}.tocsin")
        for name, text in named.items():
            path = Path(text)
            if name == "STORE_MSGS" and found.get("STORE") == "journal":
                path /= SMP_FILES[name]  # a journal is a folder
            self._files[path] = self.folder / SMP_FILES[name]

    def take(self) -> None:
        """Begin with what the suite's files say, and with nothing else."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
        for theirs, ours in self._files.items():
            if theirs.exists():
                shutil.copyfile(theirs, ours)

    def give_back(self) -> None:
        for theirs, ours in self._files.items():
            if ours.exists():
                theirs.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ours, theirs)


async def run_smp(found: Mapping[str, str]) -> None:
    from tocsin.smp_router.service import run_smp_router
    from tocsin.smp_router.settings.settings import SmpDirectSettings, SmpProxySettings, SmpSettings

    values = converted(found, SMP_VARIABLES)
    files = SuiteFiles(found)
    is_postgres = value_of(found, "STORE", one_of(STORES), "memory") == "postgres"
    if is_postgres and "DB" not in found:
        raise BadVariable(f"{PREFIX}STORE is postgres, but {PREFIX}DB is not set: set it to a URL")
    has_alpn = value_of(found, "ALPN", switch, "on")
    if not has_alpn:
        values[""] |= {"lowest_version": 6, "highest_version": 6}
    is_direct = value_of(found, "DIRECT", switch, "on") and has_alpn
    proxy: dict[str, Any] = {"enabled": False, "public_relays_only": False} | values.get("proxy", {})
    own: dict[str, Any] = {
        "hosts": (HOST,),
        "ports": (value_of(found, "PORT", int, "0"),),
        "credentials": Path(found["CREDENTIALS"]),
        "store": files.folder,
        "restore_messages": nothing_if_off(found.get("STORE_MSGS", "off")) is not None,
        "statistics_file": None,
        "database_url": found.get("DB") if is_postgres else None,
        "database_log": True,
        "proxy": SmpProxySettings(**proxy),
        "direct": SmpDirectSettings(enabled=is_direct, public_ntf_routers_only=False),
    }
    files.take()
    try:
        await run_smp_router(SmpSettings(**(own | values[""])), workers=value_of(found, "WORKERS", int, "1"))
    finally:
        files.give_back()


async def run_ntf(found: Mapping[str, str]) -> None:
    from tocsin.ntf_router.service import run_ntf_router
    from tocsin.ntf_router.settings.settings import (
        NtfDirectSettings,
        NtfSettings,
        StoreKind,
        SubscriberSettings,
    )
    from tocsin.push.settings import ApnsEndpoint, ApnsSettings

    values = converted(found, NTF_VARIABLES)
    endpoints = {}
    if "APNS_PORT" in found:
        ca_file = Path(found["APNS_CA"]) if "APNS_CA" in found else None
        endpoints["apns_test"] = ApnsEndpoint("localhost", value_of(found, "APNS_PORT", int), ca_file)
    subscriber: dict[str, Any] = {"allow_private_hosts": True} | values.get("subscriber", {})
    folder = nothing_if_off(found.get("STORE_LOG", "off"))
    own: dict[str, Any] = {
        "hosts": (HOST,),
        "ports": (value_of(found, "PORT", int, "0"),),
        "public_hosts": (HOST,),  # SMP routers learn it with direct notifications
        "credentials": Path(found["CREDENTIALS"]),
        "store": None if folder is None else Path(folder),
        "store_kind": StoreKind.URL if "DB" in found else StoreKind.MEMORY,
        "database_url": found.get("DB"),
        "statistics_file": None,
        "apns": ApnsSettings(endpoints=endpoints),
        "subscriber": SubscriberSettings(**subscriber),
        "direct": NtfDirectSettings(enabled=value_of(found, "DIRECT", switch, "on")),
    }
    await run_ntf_router(NtfSettings(**(own | values[""])))


def main(arguments: list[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    chosen = sys.argv[1:] if arguments is None else arguments
    if chosen not in (["smp"], ["ntf"]):
        print(USAGE, file=sys.stderr)
        return 2
    try:
        found = variables_of(os.environ if environment is None else environment, chosen[0])
        level = value_of(found, "LOG_LEVEL", one_of(LOG_LEVELS), "INFO")
        logging.basicConfig(level=level, format="%(message)s", stream=sys.stdout)
        asyncio.run(run_smp(found) if chosen == ["smp"] else run_ntf(found))
    except BadVariable as error:
        print(error, file=sys.stderr)
        return 2
    except TocsinError as error:
        print(f"the router cannot run: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
