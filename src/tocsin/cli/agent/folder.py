"""The folder of an agent, for its owner alone, with a settings file and the store."""

from __future__ import annotations

import argparse
import configparser
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tocsin.agent import AgentSettings, CheckIntervals
from tocsin.clients import ClientSettings
from tocsin.errors import ConfigError, DecodeError
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.transport.client_sessions import DialSettings

FOLDER_VARIABLE: Final = "TOCSIN_AGENT_FOLDER"
PASSPHRASE_VARIABLE: Final = "TOCSIN_AGENT_PASSPHRASE"  # noqa: S105 - the name of a variable
DEFAULT_FOLDER: Final = "~/.tocsin-agent"
INI_FILE: Final = "agent.ini"
STORE_FILE: Final = "agent.db"
OWNER_FOLDER: Final = 0o700
OWNER_FILE: Final = 0o600

_SECTION: Final = "AGENT"
_KEYS: Final = ("smp_servers", "ntf_servers", "check_minutes", "direct")
_SWITCH: Final = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class AgentFile:
    """The contents of `agent.ini`."""

    smp_servers: tuple[RouterAddress, ...] = ()
    ntf_servers: tuple[RouterAddress, ...] = ()
    check_minutes: float | None = None
    """How often subscriptions are checked; None: like the reference, after a day and then every three days."""
    direct: bool = True
    """Whether direct notifications are used."""

    def settings(self, timeout: float) -> AgentSettings:
        seconds = None if self.check_minutes is None else self.check_minutes * 60
        return AgentSettings(
            smp_routers=self.smp_servers,
            ntf_routers=self.ntf_servers,
            checks=CheckIntervals() if seconds is None else CheckIntervals(seconds, seconds),
            direct=self.direct,
            clients=ClientSettings(dial=DialSettings(connect_timeout=timeout), response_timeout=timeout),
        )


def agent_folder(options: argparse.Namespace) -> Path:
    chosen: Path | None = options.folder
    return chosen or Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER).expanduser()


def read_agent_file(folder: Path) -> AgentFile:
    """Read `agent.ini`. Raises ConfigError, which names the file and the key."""
    path = folder / INI_FILE
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no agent in {folder}: create one with `tocsin agent init --folder {folder}`"
        ) from None
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}; correct the file") from error
    for section in parser.sections():
        for key in parser[section]:
            if section != _SECTION or key not in _KEYS:
                raise ConfigError(f"{path}: [{section}] {key} is not a setting of an agent; remove it")
    values = dict(parser[_SECTION]) if parser.has_section(_SECTION) else {}
    return AgentFile(
        _addresses(path, values, "smp_servers", Scheme.SMP),
        _addresses(path, values, "ntf_servers", Scheme.NTF),
        check_minutes(values["check_minutes"], f"{path}: check_minutes")
        if "check_minutes" in values
        else None,
        _switch(values.get("direct", "on"), f"{path}: direct"),
    )


def _switch(text: str, where: str) -> bool:
    if text not in _SWITCH:
        raise ConfigError(f"{where}: write on or off")
    return _SWITCH[text]


def check_minutes(text: str, where: str) -> float:
    """Parse minutes. Raises ConfigError, which begins with `where`."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 1 <= minutes <= 1_000_000:
        raise ConfigError(f"{where}: write a number of minutes, at least 1")
    return minutes


def server_addresses(texts: Sequence[str], scheme: Scheme, where: str) -> tuple[RouterAddress, ...]:
    """Parse addresses. Raises ConfigError, which begins with `where`."""
    try:
        return tuple(RouterAddress.of(text, scheme) for text in texts)
    except DecodeError as error:
        raise ConfigError(f"{where}: {error}") from error


def _addresses(path: Path, values: dict[str, str], key: str, scheme: Scheme) -> tuple[RouterAddress, ...]:
    return server_addresses(values.get(key, "").split(), scheme, f"{path}: {key}")


def write_agent_file(folder: Path, file: AgentFile) -> None:
    """Replace the file atomically, for its owner alone: an address may have a password. Raises ConfigError."""
    lines = [
        "# Settings of a Tocsin agent. Separate several addresses by spaces.",
        f"[{_SECTION}]",
        f"smp_servers = {' '.join(map(str, file.smp_servers))}",
        f"ntf_servers = {' '.join(map(str, file.ntf_servers))}",
    ]
    if file.check_minutes is not None:
        lines.append(f"check_minutes = {file.check_minutes:g}")
    if not file.direct:
        lines.append("direct = off")
    new, path = folder / f"{INI_FILE}.new", folder / INI_FILE
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_FILE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
            out.flush()
            os.fsync(out.fileno())
        new.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; check the folder") from error


def passphrase_of(options: argparse.Namespace) -> str | None:
    """Return the passphrase from `--passphrase-file` or the environment. Raises ConfigError."""
    chosen: Path | None = options.passphrase_file
    if chosen is None:
        return os.environ.get(PASSPHRASE_VARIABLE) or None
    return passphrase_in(chosen, "--passphrase-file")


def passphrase_in(path: Path, option: str) -> str:
    """Return the first line of a file. Raises ConfigError, which begins with the option."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} {path} cannot be read: {type(error).__name__}") from error
    passphrase = text.partition("\n")[0].rstrip("\r")
    if not passphrase:
        raise ConfigError(f"{option} {path} has no passphrase in its first line; write one there")
    return passphrase
