"""How routers reach their database: TLS, and which of several servers they take.

A URL may name several servers (`postgresql://user@db1,db2/tocsin`). A router takes the first one that accepts changes,
so a standby is passed over until it is promoted.

TLS to a database on another machine is verified, unless its URL says otherwise. Without `sslmode` PostgreSQL's clients
accept any certificate, and no TLS at all, so anyone on the network path could read and change the store. A server on
this machine is reached without TLS.
"""

from __future__ import annotations

import ipaddress
import os
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tocsin.errors import StoreUnavailable

_ASKED: Final = "target_session_attrs"
OVERRIDE: Final = (
    "sslmode=disable or sslmode=require in the URL turns the check off, sslrootcert names a CA of your own"
)
_LOCAL_NAMES: Final = ("", "localhost", "localhost.localdomain")


class OlderDatabase(StoreUnavailable):
    """The database has lost changes that this router had made: it waits for the right one."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the PostgreSQL database is an older copy ({what}): bring the right server back or promote the standby "
            "that has everything; to go on with this copy and lose the rest, restart the router"
        )


def tls_options(url: str) -> dict[str, Any]:
    """Return the arguments of asyncpg's `connect` that make TLS verified by default."""
    try:
        parts = urlsplit(url)
        asked = parse_qs(parts.query)
        hosts = asked.get("host") or [_hosts_of(parts.netloc)]
    except ValueError:
        return {}  # asyncpg says what is wrong with the URL
    if "sslmode" in asked or "ssl" in asked or "PGSSLMODE" in os.environ:
        return {}
    if all(_is_local(host) for each in hosts for host in each.split(",")):
        return {}
    # True verifies with the system's CAs. asyncpg takes files of one's own from the URL, for its named modes only.
    return {"ssl": "verify-full" if "sslrootcert" in asked else True}


def writer_options(url: str) -> dict[str, Any]:
    """Return the arguments of asyncpg's `connect` for a program that changes the store."""
    options = tls_options(url)
    try:
        parts = urlsplit(url)
        asked = parse_qs(parts.query)
    except ValueError:
        return options  # asyncpg says what is wrong with the URL
    hosts = ",".join(asked.get("host", [parts.netloc]))
    if "," in hosts and _ASKED not in asked and "PGTARGETSESSIONATTRS" not in os.environ:
        options[_ASKED] = "read-write"
    return options


def _hosts_of(netloc: str) -> str:
    """Return the hosts of `user:password@host:port,host:port` without their ports."""
    named = netloc.rpartition("@")[2] or os.environ.get("PGHOST", "")
    return ",".join(_without_port(each) for each in named.split(","))


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def _is_local(host: str) -> bool:
    if host in _LOCAL_NAMES or host.startswith(("/", "@")):  # a Unix socket
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
