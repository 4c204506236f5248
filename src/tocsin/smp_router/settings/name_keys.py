"""Keys of the resolver of names, `[NAMES]` (v7.md 5.4), and what must be true of them together."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final, TypeVar
from urllib.parse import urlsplit

from tocsin.operate.settings.setting_keys import SettingKey
from tocsin.operate.settings.setting_values import ON_OFF, ValueKind, or_off, whole_number
from tocsin.smp_router.settings.settings import SmpNameSettings

K = TypeVar("K", bound=SettingKey)

_AUTH: Final = re.compile(r"bearer [!-~]+|basic [!-9;-~]+:[!-~]+")
_LOOPBACK: Final = frozenset({"localhost"})


def _read_endpoint(text: str) -> str:
    """Raises ValueError, also for a port that is no number."""
    parts = urlsplit(text)
    is_plain = text.isascii() and text.isprintable() and not set(text) & set(' "<>\\^`{|}')
    if not is_plain or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError
    if "@" in parts.netloc or parts.query or parts.fragment or parts.port == 0:
        raise ValueError
    return text.rstrip("/")


def _read_auth(text: str) -> str:
    if not _AUTH.fullmatch(text):
        raise ValueError
    return text


def _milliseconds(lowest: int, highest: int) -> ValueKind:
    number = whole_number(lowest, highest)
    return ValueKind(
        number.expected,
        lambda text: number.read(text) / 1000,
        lambda value: f"{value * 1000:.0f}",
        number.form,
    )


def name_keys(key: type[K]) -> tuple[K, ...]:
    def of(name: str, kind: ValueKind, about: str, setting: str, *, secret: bool = False) -> K:
        return key("NAMES", name, kind, about, f"names.{setting}", secret=secret)

    return (
        of("enable", ON_OFF, "Resolve names that clients ask for (RSLV).", "enabled"),
        of(
            "resolver_endpoint",
            or_off(ValueKind("an http or https URL without user name, query and fragment", _read_endpoint)),
            "Resolver to ask: GET <resolver_endpoint>/resolve/<name>.",
            "endpoint",
        ),
        of(
            "resolver_auth",
            ValueKind("`bearer <token>` or `basic <user>:<password>`", _read_auth),
            "Authorization at the resolver: bearer <token>, or basic <user>:<password>.",
            "auth",
            secret=True,
        ),
        of("resolver_timeout_ms", _milliseconds(100, 60_000), "Milliseconds for one name.", "timeout"),
        of(
            "resolver_max_response_bytes",
            whole_number(1024, 16_000),
            "Longest answer of the resolver.",
            "max_response_bytes",
        ),
        of(
            "resolver_concurrency",
            whole_number(1, 100_000),
            "Names of one connection that are resolved at the same time.",
            "concurrency",
        ),
    )


def name_problems(names: SmpNameSettings) -> Iterator[str]:
    """A sentence for each problem."""
    if names.enabled and names.endpoint is None:
        yield "[NAMES] enable is on, but resolver_endpoint is missing: name the resolver, or turn it off"
    if names.endpoint is not None and names.auth is not None and not may_authorize(names.endpoint):
        yield (
            "[NAMES] resolver_auth would go unencrypted to another machine: use https in resolver_endpoint, or a "
            "resolver on this machine"
        )


def may_authorize(endpoint: str) -> bool:
    """Whether a secret may be sent there: encrypted, or to this machine."""
    parts = urlsplit(endpoint)
    return parts.scheme == "https" or _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOOPBACK
