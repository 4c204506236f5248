"""Keys of direct notifications at an SMP router."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from tocsin.operate.settings.setting_values import ON_OFF, ValueKind, duration, whole_number

K = TypeVar("K")

_ADDRESS: Final = re.compile(r"ntf://[A-Za-z0-9_-]{43}=?@[^\s@]+")


def _read_addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(text.split())
    if not all(map(_ADDRESS.fullmatch, addresses)):
        raise ValueError
    return addresses


_ADDRESSES: Final = ValueKind(
    "ntf:// addresses, separated by spaces,",
    _read_addresses,
    " ".join,
    separator=" ",
    expected_in_toml="an array of ntf:// addresses",
)


def direct_keys(key: Callable[[str, ValueKind, str, str], K]) -> tuple[K, ...]:
    """`key` makes a key from its name, kind, explanation and setting."""

    def own(name: str, kind: ValueKind, about: str) -> K:
        return key(f"direct_{name}", kind, about, f"direct.{name}")

    return (
        key(
            "direct_notifications",
            ON_OFF,
            "Offer direct notifications: one subscription for each NTF router instead of one for each queue, and "
            "acknowledgements of what it has stored.",
            "direct.enabled",
        ),
        own("connect_timeout", duration(), "Seconds to reach an NTF router."),
        own("response_timeout", duration(), "Seconds an NTF router may take to answer."),
        own(
            "answer_wait",
            duration(zero=True),
            "Seconds a client waits for its NTF router's answer; then it learns that the packet is kept.",
        ),
        own(
            "retry_initial",
            duration(),
            "Seconds until an NTF router that failed is tried again, growing to …",
        ),
        own("retry_maximum", duration(), "… this many after repeated failures."),
        own(
            "keep_packets", duration(), "Seconds after which packets that no NTF router accepted are dropped."
        ),
        own("max_packets", whole_number(1), "Packets that may wait for NTF routers."),
        own("max_packets_per_router", whole_number(1), "Packets that may wait for one NTF router."),
        own("max_ntf_routers", whole_number(1, 100_000), "Most NTF routers connected at a time."),
        own(
            "idle",
            duration(),
            "Seconds after which the connection to an NTF router without packets is closed.",
        ),
        own(
            "public_ntf_routers_only",
            ON_OFF,
            "Do not try NTF routers at loopback and private addresses, so that clients cannot probe your network.",
        ),
        own("ntf_routers", _ADDRESSES, "Addresses of the NTF routers that clients may name; none: any."),
    )
