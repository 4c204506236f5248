"""What a running router tells about itself, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from tests.doubles.routers import HOST
from tests.doubles.smp_harness import SmpHarness, smp_router, until
from tests.doubles.smp_process import ControlClient, SmpFolders
from tocsin import __version__
from tocsin.protocol.ping import Ping
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.operator import RouterDiagnostics
from tocsin.wire.base64url import encode_base64url

ADDRESS = "smp://fingerprint@smp.example.com"


def diagnostics(router: SmpHarness) -> RouterDiagnostics:
    return RouterDiagnostics(router.running, version="1.2.3", address=ADDRESS)


def named(lines: Iterable[str]) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in lines)


def rows(lines: Iterable[str]) -> list[dict[str, str]]:
    headings, *values = [line.split(",") for line in lines]
    return [dict(zip(headings, row, strict=True)) for row in values]


async def test_the_process_tells_its_figures_and_its_tasks() -> None:
    async with smp_router() as router:
        before = named(diagnostics(router).process())
        await router.connect()
        after = named(diagnostics(router).process())
    assert int(after["tasks"]) == int(before["tasks"]) + 1
    assert float(after["cpu_user_seconds"]) > 0


async def test_sockets_are_counted_by_kind_and_port() -> None:
    async with smp_router() as router:
        for _ in range(2):
            await (await router.connect()).ask(Ping())
        await (await router.connect_service(role=ServiceRole.NOTIFIER)).ask(Ping())
        _, silent = await asyncio.open_connection(HOST, router.running.ports[0])
        sockets = diagnostics(router).sockets
        await until(lambda: named(sockets())["handshakes"] == "1")
        found = named(sockets())
        silent.close()
        port = router.running.ports[0]
    assert (found["clients"], found["services"], found["handshakes"], found["relays"]) == ("2", "1", "1", "0")
    assert (found[f"port_{port}_accepted"], found[f"port_{port}_active"]) == ("4", "3")


async def test_information_about_the_router_has_no_secrets() -> None:
    async with smp_router(
        message_quota=7,
        create_password="create-secret",
        control_port_admin_password="admin-secret",
        control_port_user_password="user-secret",
    ) as router:
        lines = list(diagnostics(router).server_info())
        ports = router.running.ports
    found = named(lines)
    assert found["version"] == "Tocsin 1.2.3"
    assert found["address"] == ADDRESS
    assert found["ports"] == str(ports[0])
    assert found["protocol versions"] == "6-20"
    assert found["python"]
    assert found["[TOCSIN] message_quota"] == "7"
    assert not any("-secret" in line for line in lines)


async def test_tasks_are_counted_by_function() -> None:
    async with smp_router() as router:
        for _ in range(3):
            await (await router.connect()).ask(Ping())
        found = {row["function"]: int(row["count"]) for row in rows(diagnostics(router).tasks())}
    assert found["Listener._serve"] == 3
    assert found["Timers._repeat"] >= 5


async def test_tasks_of_connections_tell_where_they_wait_and_not_for_whom() -> None:
    async with smp_router() as router:
        client = await router.connect()
        queue = await client.new_queue()
        lines = list(diagnostics(router).connection_tasks())
    [found] = rows(lines)
    assert found["function"] == "Listener._serve"
    assert found["waits_at"].startswith("block_connection.py:")
    for secret in (HOST, encode_base64url(queue.recipient_id), queue.recipient_id.hex()):
        assert not any(secret in line for line in lines)


async def test_an_operator_of_a_started_router_is_told(tmp_path: Path) -> None:
    """As `tocsin smp start` puts it together: the real answers behind the control port's words."""
    folders = SmpFolders(tmp_path)
    router = await folders.start(create_password="create-secret")
    try:
        operator = await ControlClient.connect(router.control_port)
        version, python, address = await operator.ask_for("server-info", 3)
        assert version == f"version: Tocsin {__version__}"
        assert python.startswith("python: ")
        fingerprint = encode_base64url(folders.fingerprint)
        assert address.startswith(f"address: smp://{fingerprint}@{HOST}")
        await operator.close()
        for command, first in (
            ("stats-rts", "uptime_seconds: "),
            ("sockets", "clients: 0"),
            ("threads", "count,function"),
            ("socket-threads", "task,function,waits_at"),
        ):
            operator = await ControlClient.connect(router.control_port)
            assert (await operator.ask(command)).startswith(first)
            await operator.close()
    finally:
        await router.kill()
