"""Which of several servers a router takes, and when TLS to it is verified."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tocsin.durable.postgres import connecting
from tocsin.durable.postgres.connecting import OlderDatabase, tls_options, writer_options
from tocsin.durable.postgres.database_snapshot import read_only_snapshot
from tocsin.errors import StoreUnavailable
from tocsin.ntf_router.opened_store import store_lines
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind

SEVERAL = (
    "postgresql://u:p@localhost:5432,127.0.0.1:5433/db",
    "postgresql://u@/db?host=/run/a,/run/b",
)


@pytest.mark.parametrize("url", SEVERAL)
def test_of_several_servers_it_takes_the_one_that_accepts_changes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGTARGETSESSIONATTRS", raising=False)
    assert writer_options(url) == {"target_session_attrs": "read-write"}
    joined = "&" if "?" in url else "?"
    assert writer_options(f"{url}{joined}target_session_attrs=any") == {}
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "any")
    assert writer_options(url) == {}


def test_one_server_is_taken_as_it_is() -> None:
    for url in ("postgresql://u@localhost/a,b", "postgresql:///db?host=/run/a", "postgresql://[/db"):
        assert writer_options(url) == {}


def test_an_older_copy_is_a_trouble_that_may_pass() -> None:
    error = OlderDatabase("its heartbeat is behind 5")
    assert isinstance(error, StoreUnavailable)
    assert "restart the router" in str(error)


def test_the_lines_of_a_start_name_all_hosts_and_no_password() -> None:
    """With several ports the router ended with a traceback."""
    settings = NtfSettings(store_kind=StoreKind.URL, database_url="postgresql://me:hunter2@db1:1,db2:2/x?y=z")
    assert store_lines(settings)[0] == (
        f"PostgreSQL database: postgresql://me@db1:1,db2:2/x, schema: {settings.database_schema}"
    )


LOCAL = (
    "postgresql://u@/db",
    "postgresql://u@localhost/db",
    "postgresql://u:p@127.0.0.1:5433/db",
    "postgresql://u@[::1]:5432/db",
    "postgresql://postgres:@/postgres?host=/tmp/folder",
    "postgresql://u@localhost:1,127.0.0.1:2/db",
)
AWAY = (
    "postgresql://u@db.example.com/db",
    "postgresql://u:p%40x@10.0.0.1:5433/db",
    "postgresql://u@[2001:db8::1]/db",
    "postgresql://u@/db?host=db.example.com",
    "postgresql://u@localhost,db.example.com/db",
    "postgres://db.example.com",
)


@pytest.mark.parametrize("url", LOCAL)
def test_this_machine_needs_no_tls(url: str) -> None:
    assert tls_options(url) == {}


@pytest.mark.parametrize("url", AWAY)
def test_another_machine_is_verified(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    assert tls_options(url) == {"ssl": True}
    joined = "&" if "?" in url else "?"
    assert tls_options(f"{url}{joined}sslmode=disable") == {}
    assert tls_options(f"{url}{joined}sslrootcert=/ca.pem") == {"ssl": "verify-full"}
    monkeypatch.setenv("PGSSLMODE", "prefer")
    assert tls_options(url) == {}


def test_the_environment_may_name_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example.com")
    assert tls_options("postgresql:///db") == {"ssl": True}


def test_a_url_that_is_none_is_left_to_asyncpg() -> None:
    assert tls_options("postgresql://[/db") == {}


@asynccontextmanager
async def server_without_tls() -> AsyncIterator[int]:
    """Answers N to the request for TLS, as PostgreSQL does."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"N")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0, family=socket.AF_INET)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_server_without_tls_is_refused_and_the_text_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "_is_local", lambda _host: False)
    async with server_without_tls() as port:
        with pytest.raises(StoreUnavailable, match=r"TLS cannot be verified.*sslmode=disable"):
            async with read_only_snapshot(f"postgresql://u@127.0.0.1:{port}/db"):
                pass
