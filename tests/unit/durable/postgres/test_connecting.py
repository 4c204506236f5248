"""Which of several servers a router takes."""

from __future__ import annotations

import pytest

from tocsin.durable.postgres.connecting import OlderDatabase, writer_options
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
