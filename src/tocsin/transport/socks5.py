"""A SOCKS5 client (RFC 1928) with user name and password (RFC 1929), for Tor and the like.

Names are passed to the proxy as they are and never resolved here: a lookup would tell the network which
router is dialed, and `.onion` names exist only for the proxy.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass, field
from typing import Final

from tocsin.errors import ConnectFailed

_VERSION: Final = 5
_AUTH_VERSION: Final = 1
_CONNECT: Final = 1
_NO_AUTHENTICATION: Final = 0
_USER_AND_PASSWORD: Final = 2
_NONE_ACCEPTABLE: Final = 0xFF
_IPV4, _DOMAIN, _IPV6 = 1, 3, 4
_PORT_BYTES: Final = 2
REPLY_HEAD_BYTES: Final = 5
"""Version, code, reserved, address type, and the first byte of the address."""

REPLIES: Final = {  # RFC 1928, section 6
    1: "general failure",
    2: "connection not allowed by the rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "address type not supported",
}


class SocksRefused(ConnectFailed):
    """The proxy answered that it cannot connect; `code` is its reply."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the SOCKS proxy answers: {REPLIES.get(code, 'unknown code')} ({code})")
        self.code = code


@dataclass(frozen=True, slots=True)
class SocksProxy:
    """A proxy's address and login.

    With `onion_only` the hosts that can be reached without the proxy are dialed without it.
    """

    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    onion_only: bool = False


def encode_greeting(proxy: SocksProxy) -> bytes:
    """Offer one method. With a user name, accept no other: proxies separate users by their names."""
    return bytes((_VERSION, 1, _USER_AND_PASSWORD if proxy.username is not None else _NO_AUTHENTICATION))


def check_method(answer: bytes, proxy: SocksProxy) -> None:
    """Check the two bytes that answer the greeting. Raises ConnectFailed."""
    version, method = answer
    if version != _VERSION:
        raise ConnectFailed(f"the SOCKS proxy speaks version {version}, not 5")
    if method == _NONE_ACCEPTABLE:
        wanted = "no login" if proxy.username is None else "login by user name and password"
        raise ConnectFailed(f"the SOCKS proxy does not accept {wanted}")
    if method != encode_greeting(proxy)[2]:
        raise ConnectFailed(f"the SOCKS proxy chose method {method}, which was not offered")


def encode_login(proxy: SocksProxy) -> bytes:
    """Raises ConnectFailed when name or password do not fit their length bytes."""
    name, password = (proxy.username or "").encode(), (proxy.password or "").encode()
    if not 1 <= len(name) <= 255 or not 1 <= len(password) <= 255:
        raise ConnectFailed("SOCKS user name and password need 1 to 255 bytes each")
    return bytes((_AUTH_VERSION, len(name))) + name + bytes((len(password),)) + password


def check_login(answer: bytes) -> None:
    """Check the two bytes that answer the login. Raises ConnectFailed."""
    version, status = answer
    if version != _AUTH_VERSION:
        raise ConnectFailed(f"the SOCKS proxy answers the login in version {version}, not 1")
    if status != 0:
        raise ConnectFailed(f"the SOCKS proxy refuses the user name or password ({status})")


def encode_connect(host: str, port: int) -> bytes:
    """Raises ConnectFailed for a name that SOCKS cannot carry."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not host.isascii() or not 1 <= len(host) <= 255:
            raise ConnectFailed(f"the host name {host!r} cannot be passed to a SOCKS proxy") from None
        kind, target = _DOMAIN, bytes((len(host),)) + host.encode("ascii")
    else:
        kind, target = (_IPV4 if address.version == 4 else _IPV6), address.packed
    return bytes((_VERSION, _CONNECT, 0, kind)) + target + port.to_bytes(_PORT_BYTES, "big")


def remaining_reply_bytes(head: bytes) -> int:
    """Return how many bytes follow the first five of the reply. Raises SocksRefused or ConnectFailed."""
    version, code, _reserved, kind, first = head
    if version != _VERSION:
        raise ConnectFailed(f"the SOCKS proxy replies in version {version}, not 5")
    if code != 0:
        raise SocksRefused(code)
    sizes = {_IPV4: 4, _IPV6: 16, _DOMAIN: 1 + first}
    if kind not in sizes:
        raise ConnectFailed(f"the SOCKS proxy replies with address type {kind}, which does not exist")
    return sizes[kind] - 1 + _PORT_BYTES


async def connect_through(sock: socket.socket, proxy: SocksProxy, host: str, port: int) -> None:
    """Turn a connection to the proxy into one to `host`. Raises ConnectFailed. There is no time limit here.

    It reads exactly the bytes of the proxy's answers, because later bytes belong to TLS.
    """
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, encode_greeting(proxy))
    check_method(await _receive(sock, 2), proxy)
    if proxy.username is not None:
        await loop.sock_sendall(sock, encode_login(proxy))
        check_login(await _receive(sock, 2))
    await loop.sock_sendall(sock, encode_connect(host, port))
    head = await _receive(sock, REPLY_HEAD_BYTES)
    await _receive(sock, remaining_reply_bytes(head))


async def _receive(sock: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    received = b""
    while len(received) < size:
        part = await loop.sock_recv(sock, size - len(received))
        if not part:
            raise ConnectFailed("the SOCKS proxy closed the connection")
        received += part
    return received
