"""Kinds of values in settings files: how each is read and written, and how an error describes it.

Every kind is read from text, as INI files, the environment and the command line have it. `form`, `separator` and `off`
say what stands for it in TOML, which has types of its own (`toml_files.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

_HOST: Final = re.compile(r"[^\s,;/@#]{1,255}")
_SOCKS: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:,/@\[\]]+):([0-9]{1,5})")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_CREATE_PASSWORD: Final = re.compile(r"[!-~]+")


class TomlForm(Enum):
    """Which type of TOML a value has."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class ValueKind:
    """`read` raises ValueError for a text that is not as `expected`; `write` gives a text that reads back."""

    expected: str
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str
    form: TomlForm = TomlForm.TEXT
    separator: str = ""
    """Between the parts of a list, which is an array in TOML; empty if the value is no list."""
    off: bool = False
    """Whether `off` is a value; it is `false` in TOML."""
    expected_in_toml: str = ""
    """If it is not as in other places."""

    @property
    def toml_expected(self) -> str:
        return self.expected_in_toml or self.expected


def whole_number(lowest: int, highest: int | None = None) -> ValueKind:
    def read(text: str) -> int:
        number = int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else None
        if number is None or number < lowest or (highest is not None and number > highest):
            raise ValueError
        return number

    limit = f"of at least {lowest}" if highest is None else f"from {lowest} to {highest}"
    return ValueKind(f"a whole number {limit}", read, form=TomlForm.NUMBER)


def duration(*, zero: bool = False, unit: float = 1.0, name: str = "seconds") -> ValueKind:
    """A time in `name`, kept as seconds; `zero` says whether 0 has a meaning."""

    def read(text: str) -> float:
        number = float(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text) else math.nan
        if not (number > 0 or (zero and number == 0)):
            raise ValueError
        return number * unit

    def write(seconds: float) -> str:
        number = round(seconds / unit, 9)
        return str(int(number)) if number == int(number) else f"{number:f}".rstrip("0")

    expected = f"a number of {name}, {'0 or more' if zero else 'more than 0'}"
    return ValueKind(expected, read, write, TomlForm.NUMBER)


def fraction() -> ValueKind:
    """A part of a whole."""

    def read(text: str) -> float:
        number = float(text) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", text) else math.nan
        if not 0 <= number <= 1:
            raise ValueError
        return number

    return ValueKind("a number from 0 to 1", read, duration().write, TomlForm.NUMBER)


def or_off(kind: ValueKind) -> ValueKind:
    """`off` is None."""
    return ValueKind(
        f"{kind.expected}, or `off`,",
        lambda text: None if text == "off" else kind.read(text),
        lambda value: "off" if value is None else kind.write(value),
        kind.form,
        kind.separator,
        off=True,
        expected_in_toml=f"{kind.toml_expected}, or `false`,",
    )


def choice(**values: object) -> ValueKind:
    """One of some words, each of which stands for a value."""

    def read(text: str) -> object:
        if text not in values:
            raise ValueError
        return values[text]

    def write(value: object) -> str:
        return next(word for word, meant in values.items() if meant == value)

    return ValueKind(_words(values), read, write, expected_in_toml=_words(values, '"'))


def _words(values: Iterable[str], quote: str = "") -> str:
    return " or ".join(f"`{quote}{word}{quote}`" for word in values)


def unavailable(allowed: str, because: str) -> ValueKind:
    """A wish that can only be declined: any other text than `allowed` is answered with the reason."""

    def read(text: str) -> None:
        if text != allowed:
            raise ValueError

    off = allowed == "off"
    in_toml = "false" if off else f'"{allowed}"'
    return ValueKind(
        f"{because}: only `{allowed}`",
        read,
        lambda _value: allowed,
        off=off,
        expected_in_toml=f"{because}: only `{in_toml}`",
    )


def _read_ports(text: str) -> tuple[int, ...]:
    ports = tuple(_read_port(part.strip()) for part in text.split(","))
    if len(set(ports)) != len(ports):
        raise ValueError
    return ports


def _read_port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65_535:
        raise ValueError
    return int(text)


def _read_hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(part.strip() for part in text.split(","))
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise ValueError
    return hosts


def _read_domains(text: str) -> tuple[str, ...]:
    domains = tuple(text.replace(",", " ").split())
    if not all(_HOST.fullmatch(domain) for domain in domains):
        raise ValueError
    return domains


def _read_host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError
    return text


def _read_socks(text: str) -> str:
    found = _SOCKS.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= 65_535:
        raise ValueError
    return text


def _read_password(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError
    return text


def _read_create_password(text: str) -> str:
    # It stands in addresses, between the fingerprint and the host.
    if not _CREATE_PASSWORD.fullmatch(text) or set(text) & set("@:/"):
        raise ValueError
    return text


def _read_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError
    return text


def _read_schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text):
        raise ValueError
    return text


def _read_path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError
    return Path(text)


ON_OFF: Final = replace(
    choice(on=True, off=False), form=TomlForm.BOOLEAN, expected_in_toml="`true` or `false`"
)
TEXT: Final = ValueKind("text", str)
NAME: Final = ValueKind("a name of letters, digits, `.`, `_` and `-`", _read_name)
SCHEMA: Final = ValueKind("a name of small letters, digits and `_`", _read_schema)
PATH: Final = ValueKind("a path", _read_path)
PORT: Final = ValueKind("a port from 0 to 65535 (0: the system chooses)", _read_port, form=TomlForm.NUMBER)
PORTS: Final = ValueKind(
    "one port or more, separated by commas,",
    _read_ports,
    lambda ports: ",".join(map(str, ports)),
    TomlForm.NUMBER,
    ",",
    expected_in_toml="a port, or an array of different ones,",
)
HOST: Final = ValueKind("a host name or IP address", _read_host)
HOSTS: Final = ValueKind(
    "host names or IP addresses, separated by commas,",
    _read_hosts,
    ",".join,
    separator=",",
    expected_in_toml="an array of host names or IP addresses",
)
HOSTS_OR_NONE: Final = replace(HOSTS, read=lambda text: _read_hosts(text) if text else ())
DOMAINS: Final = ValueKind(
    "domains, separated by spaces,",
    _read_domains,
    " ".join,
    separator=" ",
    expected_in_toml="an array of domains",
)
SOCKS_PROXY: Final = ValueKind("host:port", _read_socks)
PASSWORD: Final = ValueKind("a password", _read_password)
CREATE_PASSWORD: Final = ValueKind(
    "a password of printable ASCII characters without spaces, `@`, `:` and `/`", _read_create_password
)
