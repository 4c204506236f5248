"""TLS to a database on another machine: verified, unless its URL says otherwise.

Without `sslmode` PostgreSQL's clients accept any certificate, and no TLS at all, so whoever is on the way can read and
change the store. A server on this machine is reached without TLS.
"""

from __future__ import annotations

import ipaddress
import os
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

OVERRIDE: Final = (
    "sslmode=disable or sslmode=require in the URL turns the check off, sslrootcert names a CA of your own"
)
_LOCAL_NAMES: Final = ("", "localhost", "localhost.localdomain")


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
