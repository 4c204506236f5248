"""The reference's own tables: what `tocsin migrate smp` says of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from tests.doubles.reference_smp import make_reference_tables
from tests.unit.migrate.test_smp_move import Reference, reference, to  # noqa: F401 - a fixture
from tocsin.cli.main import run
from tocsin.errors import StoreError
from tocsin.migrate.smp_reference_database import describe_reference_database

ROWS = """
    INSERT INTO services VALUES ('a', 'N', 'c', '1', 0), ('b', 'N', 'c', '2', 0);
    INSERT INTO msg_queues (recipient_id, recipient_keys, rcv_dh_secret, sender_id, status, deleted_at)
    VALUES ('1', 'k', 's', '1', 'active', NULL), ('2', 'k', 's', '2', 'active', NULL),
        ('3', 'k', 's', '3', 'active', 17)
"""


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "smp_server"})
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("release", "says"),
    [
        ("6.5", "the schema smp_server is of a reference before 7.0: 2 queues, 2 services"),
        (
            "7.0",
            "the schema smp_server is of reference 7.0 (migration 20250915_queue_ids_hash): 2 queues, 2 services",
        ),
        (None, "the database has no tables of the reference in the schema smp_server"),
    ],
)
async def test_release_and_contents_are_named(release: str | None, says: str, url: str) -> None:
    if release is not None:
        await make_reference_tables(url, release)
        await execute(url, ROWS, "DROP FUNCTION public.digest")
    found = await describe_reference_database(url, "smp_server")
    assert found.startswith(says)
    assert ("CREATE EXTENSION pgcrypto SCHEMA public" in found) is (release is not None)


async def test_an_extension_elsewhere_does_not_count(url: str) -> None:
    """The triggers call public.digest."""
    await make_reference_tables(url, "7.0")
    assert "pgcrypto" not in await describe_reference_database(url, "smp_server")
    await execute(url, "ALTER FUNCTION public.digest SET SCHEMA smp_server")
    assert "pgcrypto" in await describe_reference_database(url, "smp_server")


async def test_a_database_that_is_not_there_is_an_error() -> None:
    with pytest.raises(StoreError):
        await describe_reference_database("postgresql://x@127.0.0.1:1/x", "smp_server")


async def test_the_command_names_what_it_found(
    reference: Reference,  # noqa: F811
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await make_reference_tables(url, "7.0")
    await execute(url, ROWS)
    ini = reference.config / "smp-server.ini"
    tables = f"store_queues: database\ndb_connection: {url}"
    ini.write_text(ini.read_text().replace("store_queues: memory", tables))
    for more in (to(tmp_path / "ours"), []):
        assert await asyncio.to_thread(run, reference.arguments(*more)) == 1
        error = capsys.readouterr().err
        assert "of reference 7.0 (migration 20250915_queue_ids_hash): 2 queues, 2 services" in error
        assert error.count("\n") == 1
        assert url not in error


def test_a_database_that_cannot_be_reached_does_not_hide_the_next_step(
    reference: Reference,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ini = reference.config / "smp-server.ini"
    tables = "store_queues: database\ndb_connection: postgresql://hidden-user@127.0.0.1:1/x"
    ini.write_text(ini.read_text().replace("store_queues: memory", tables))
    assert run(reference.arguments(*to(tmp_path / "ours"))) == 1
    error = capsys.readouterr().err
    assert "`smp-server database export`" in error
    assert "could not be looked at" in error
    assert "hidden-user" not in error
