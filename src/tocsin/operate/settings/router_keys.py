"""Keys that both routers have: of transport, of hosts to connect to, of the control port, of the delivery event log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tocsin.operate.settings.setting_keys import SettingKey
from tocsin.operate.settings.setting_values import (
    DOMAINS,
    HOSTS_OR_NONE,
    ON_OFF,
    PASSWORD,
    PATH,
    PORT,
    PORTS,
    SOCKS_PROXY,
    ValueKind,
    choice,
    duration,
    or_off,
    unavailable,
    whole_number,
)

K = TypeVar("K")
R = TypeVar("R", bound=SettingKey)


def transport_keys(key: type[R], control_port: int) -> tuple[R, ...]:
    """`control_port` is the usual one."""

    def transport(name: str, kind: ValueKind, about: str, setting: str) -> R:
        return key("TRANSPORT", name, kind, about, setting)

    return (
        transport("host", HOSTS_OR_NONE, "Host names of this router in its address.", "public_hosts"),
        transport("port", PORTS, "Ports to listen on.", "ports"),
        transport("log_tls_errors", ON_OFF, "Log connections whose TLS handshake failed.", "log_tls_errors"),
        key(
            "TRANSPORT",
            "websockets",
            unavailable("off", because="Tocsin has no WebSockets"),
            "Not available: off.",
            shown="off",
        ),
        transport(
            "control_port",
            or_off(PORT),
            f"Port for the operator on 127.0.0.1; {control_port} is usual.",
            "control_port",
        ),
    )


def host_keys(key: type[R], section: str, setting: str, routers: str, domains: str) -> tuple[R, ...]:
    """Which hosts of other routers to connect to; `routers` and `domains` name them in explanations."""

    def host(name: str, kind: ValueKind, about: str, field: str) -> R:
        return key(section, name, kind, about, f"{setting}.{field}")

    return (
        host(
            "host_mode",
            choice(public=False, onion=True),
            f"Which hosts of {routers} to try first: public or onion.",
            "prefer_onion",
        ),
        host("required_host_mode", ON_OFF, "Do not try hosts of the other kind.", "required_host_mode"),
        host(
            "socks_proxy",
            or_off(SOCKS_PROXY),
            f"SOCKS proxy for connections to {routers}, host:port.",
            "socks_proxy",
        ),
        host(
            "socks_mode",
            choice(onion=True, always=False),
            "Use the SOCKS proxy only for .onion hosts (onion) or for all (always).",
            "socks_onion_only",
        ),
        host("own_server_domains", DOMAINS, domains, "own_server_domains"),
    )


def password_keys(key: type[R], user: str) -> tuple[R, ...]:
    """`user` explains what the second password is for."""

    def password(name: str, about: str) -> R:
        return key("AUTH", name, PASSWORD, about, name, secret=True)

    return (
        password("control_port_admin_password", "For all commands of the control port."),
        password("control_port_user_password", user),
    )


def event_log_keys(key: Callable[[str, ValueKind, str], K]) -> tuple[K, ...]:
    """`key` makes a key from its name, kind and explanation."""
    return (
        key(
            "event_log",
            or_off(PATH),
            "Folder of the delivery event log; a relative path starts at this file's folder.",
        ),
        key(
            "event_log_keys",
            or_off(PATH),
            "Folder of its pseudonym keys; off: beside the event log, with -keys after its name.",
        ),
        key(
            "event_log_retention_days",
            whole_number(1, 3650),
            "Days after which events and their pseudonym keys are erased.",
        ),
        key(
            "event_log_bytes",
            whole_number(1 << 20),
            "Size in bytes beyond which the oldest events are erased.",
        ),
        key("event_log_segment_seconds", duration(), "Most seconds until readers see an event."),
    )


def slow_client_keys(key: Callable[[str, ValueKind, str], K]) -> tuple[K, ...]:
    return (
        key("write_queue_blocks", whole_number(1, 100_000), "Blocks that may wait for a slow client."),
        key(
            "write_stall_seconds",
            duration(),
            "Close a connection whose client has read nothing for this many seconds while blocks wait for it.",
        ),
        key(
            "max_waiting_bytes",
            whole_number(1_000_000),
            "Bytes that may wait for clients that do not read, for each port; beyond it the slowest are closed.",
        ),
    )
