"""A whole router as its operator meets it: control port, metrics, stopping, starts that are refused."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.routers import HOST
from tests.doubles.smp_harness import AUTH, OK, PATIENCE, Asked, SmpTestClient, send_command, until
from tests.doubles.smp_process import ADMIN_PASSWORD, ControlClient, SmpFolders, SmpProcess
from tocsin.errors import ConnectionLost
from tocsin.operate.http_client import get_page
from tocsin.operate.operator_pages import LIVE_PATH, READY_PATH
from tocsin.protocol.error_codes import Blocked, BlockReason
from tocsin.protocol.router_answers import Refused
from tocsin.protocol.smp.recipient_commands import InspectQueue, Subscribe
from tocsin.protocol.smp.responses import QueueDeleted, QueueInspected, Subscribed
from tocsin.smp_router.statistics.statistics_lines import parse_statistics
from tocsin.smp_router.store.logs.log_reading import (
    CHANGE_BASE,
    CHANGE_LOG,
    LOCK,
    MESSAGE_LOG,
    NOTIFICATION_LOG,
    STORE_LOG,
)
from tocsin.wire.base64url import encode_base64url

STATISTICS = "smp-server-stats.log"
STOPPED = {MESSAGE_LOG, NOTIFICATION_LOG, STORE_LOG, LOCK, STATISTICS}
"""What a graceful stop leaves behind."""
SPAM = Refused(Blocked(BlockReason.SPAM))


@pytest.fixture
def folders(tmp_path: Path) -> SmpFolders:
    return SmpFolders(tmp_path)


@asynccontextmanager
async def serving(folders: SmpFolders, **settings: Any) -> AsyncIterator[tuple[SmpProcess, ControlClient]]:
    """A router process and its operator."""
    router = await folders.start(**settings)
    try:
        operator = await ControlClient.connect(router.control_port)
        try:
            yield router, operator
        finally:
            await operator.close()
    finally:
        for client in router.clients:
            client.connection.abort()
        await router.kill()


async def test_an_operator_blocks_and_unblocks_a_queue(folders: SmpFolders) -> None:
    async with serving(folders) as (router, operator):
        recipient, sender = await router.connect(), await router.connect()
        queue = await recipient.secured_queue()
        sender_id = encode_base64url(queue.sender_id)
        assert await operator.ask(f"status {sender_id}") == "active"

        assert await operator.ask(f"block {sender_id} reason=spam") == "ok"
        assert await recipient.event() == (queue.recipient_id, SPAM)
        assert await operator.ask(f"status {sender_id}") == "blocked,reason=spam"
        assert await sender.send_message(queue, b"hello") == SPAM

        assert await operator.ask(f"unblock {sender_id}") == "ok"
        assert await operator.ask(f"unblock {sender_id}") == "error: AUTH"
        assert await operator.ask(f"status {sender_id}") == "active"
        assert await sender.send_message(queue, b"hello") == OK
        assert queue.body(await recipient.message(queue)) == b"hello"


async def test_a_block_survives_a_kill(folders: SmpFolders) -> None:
    async with serving(folders) as (router, operator):
        recipient = await router.connect()
        queue = await recipient.secured_queue()
        sender_id = encode_base64url(queue.sender_id)
        assert await operator.ask(f"block {sender_id} reason=content") == "ok"
        await router.kill()
    async with serving(folders) as (router, operator):
        assert await operator.ask(f"status {sender_id}") == "blocked,reason=content"


async def test_an_operator_deletes_a_queue(folders: SmpFolders) -> None:
    async with serving(folders) as (router, operator):
        recipient = await router.connect()
        queue = await recipient.secured_queue()
        sender_id = encode_base64url(queue.sender_id)
        assert await operator.ask(f"delete {sender_id}") == "ok"
        assert await recipient.event() == (queue.recipient_id, QueueDeleted())
        assert await operator.ask(f"status {sender_id}") == "error: AUTH"
        assert await operator.ask(f"delete {sender_id}") == "error: AUTH"
        assert await recipient.send_message(queue, b"hello") == AUTH


async def test_statistics_and_clients(folders: SmpFolders) -> None:
    async with serving(folders) as (router, operator):
        recipient = await router.connect()
        queue = await recipient.secured_queue()
        await recipient.enable_notifications(queue)
        assert await recipient.send_message(queue, b"hello", notify=True) == OK
        operator.say("stats")
        operator.say("no-such-command")
        stats = {}
        while not (line := await operator.line()).startswith("error:"):
            name, _, number = line.partition(": ")
            stats[name] = int(number)
        assert stats["queues_created"] == stats["queues_secured"] == stats["notifiers_created"] == 1
        assert stats["messages_sent"] == stats["messages_with_notification"] == 1
        headings, client = await operator.ask_for("clients", 2)
        found = dict(zip(headings.split(","), client.split(","), strict=True))
        assert (found["version"], found["subscriptions"], found["notifiers"]) == ("18", "1", "0")


async def test_saving_writes_a_snapshot_and_begins_a_new_log_of_changes(folders: SmpFolders) -> None:
    async with serving(folders) as (router, operator):
        recipient = await router.connect()
        queue = await recipient.secured_queue()
        await recipient.enable_notifications(queue)
        assert await recipient.send_message(queue, b"hello", notify=True) == OK
        assert len(folders.lines(CHANGE_LOG)) == 2
        assert await operator.ask("save") == "server state saved!"
        assert folders.lines(CHANGE_LOG) == []
        assert (len(folders.lines(MESSAGE_LOG)), len(folders.lines(NOTIFICATION_LOG))) == (1, 1)
        assert folders.names() == STOPPED | {CHANGE_LOG, CHANGE_BASE}
        await router.kill()
    async with serving(folders) as (router, operator):
        recipient = await router.connect()
        assert isinstance(await recipient.ask(Subscribe(), queue.recipient_id, queue.key), Subscribed)
        assert queue.body(await recipient.message(queue)) == b"hello"


async def test_an_operator_without_the_password_may_do_nothing(folders: SmpFolders) -> None:
    async with serving(folders, control_port_user_password="user-pass") as (router, _):
        reader, writer = await asyncio.open_connection(HOST, router.control_port)
        writer.write(b"stats\nauth user-pass\nclients\nstatus AAAA\nquit\n")
        async with asyncio.timeout(PATIENCE):
            lines = (await reader.read()).decode().splitlines()[2:]
        writer.close()
        assert lines == ["AUTH", "AUTH", "error: AUTH"]
        assert not any("user-pass" in line or ADMIN_PASSWORD in line for line in router.log)


async def test_metrics_show_the_counters(folders: SmpFolders) -> None:
    async with serving(folders, prometheus_port=0) as (router, _):
        client = await router.connect()
        queue = await client.secured_queue()
        assert await client.send_message(queue, b"hello") == OK
        reader, writer = await asyncio.open_connection(HOST, router.metrics_port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
    assert head.startswith("HTTP/1.1 200 OK")
    samples = dict(line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#"))
    of_interest = (
        "smp_queues",
        "smp_open_connections",
        "smp_queues_created_total",
        "smp_messages_sent_total",
    )
    assert {name: float(samples[name]) for name in of_interest} == dict.fromkeys(of_interest, 1.0)
    for name in ("smp_proxy_relays", "smp_packets_waiting", "smp_ntf_router_connections"):
        assert samples[name] == "0"


async def answers_until_the_end(client: SmpTestClient) -> list[bytes]:
    """Correlation ids of the answers that come before the router closes the connection."""
    answered: list[bytes] = []
    with suppress(ConnectionLost):
        while True:
            answered += [received.corr_id for received in await client.block() if received.response == OK]
    return answered


async def test_sigterm_sends_the_answers_that_are_on_the_way(folders: SmpFolders) -> None:
    """Whatever was done was answered: the messages in the log are those that got OK."""
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02):
        async with serving(folders) as (router, _):
            recipient, sender = await router.connect(), await router.connect()
            queue = await recipient.secured_queue()
            asked = []
            for number in range(40):
                asked += await sender.send(
                    Asked(send_command(b"%d" % number), queue.sender_id, queue.sender_key)
                )
            reading = asyncio.create_task(answers_until_the_end(sender))
            await asyncio.sleep(delay)  # the signal comes at different moments
            router.terminate()
            answered = await reading
            assert await router.ended() == 0
            assert "stopping" in "".join(router.log)
        assert answered == asked[: len(answered)]
        recipient_id = encode_base64url(queue.recipient_id).encode()
        kept = [line for line in folders.lines(MESSAGE_LOG) if line.split()[1] == recipient_id]
        assert len(kept) == len(answered)


async def test_sigterm_leaves_no_log_of_changes(folders: SmpFolders) -> None:
    async with serving(folders) as (router, _):
        client = await router.connect()
        queue = await client.secured_queue()
        assert await client.send_message(queue, b"hello") == OK
        assert await router.stop() == 0
    assert folders.names() == STOPPED
    assert len(folders.lines(MESSAGE_LOG)) == 1


async def test_sigterm_does_not_wait_for_a_client_that_does_not_read(folders: SmpFolders) -> None:
    async with serving(folders, drain_seconds=0.3) as (router, _):
        client = await router.connect()
        client.connection._connection._stop_reading()
        loop = asyncio.get_running_loop()
        before = loop.time()
        assert await router.stop() == 0
        assert loop.time() - before < 2.0


async def test_maintenance_compacts_and_does_not_listen(folders: SmpFolders) -> None:
    async with serving(folders) as (router, _):
        client = await router.connect()
        queue = await client.secured_queue()
        assert await client.send_message(queue, b"hello") == OK
        await router.kill()
    assert len(folders.lines(STORE_LOG)) == 2
    with socket.socket() as occupied:  # would be refused if it listened
        occupied.bind((HOST, 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        code, log = await folders.outcome("--maintenance", port=port)
    assert code == 0
    assert "maintenance" in log
    assert "serving" not in log
    assert [line.split()[0] for line in folders.lines(STORE_LOG)] == [b"CREATE"]
    assert len(folders.lines(MESSAGE_LOG)) == 1
    assert folders.names() == STOPPED
    async with serving(folders) as (router, _):
        client = await router.connect()
        info = await client.expect(QueueInspected, InspectQueue(), queue.recipient_id, queue.key)
        assert json.loads(info.json)["qiSize"] == 1


async def test_maintenance_removes_old_messages_and_counts_them(folders: SmpFolders) -> None:
    async with serving(folders) as (router, _):
        client = await router.connect()
        queue = await client.secured_queue()
        assert await client.send_message(queue, b"hello") == OK
        assert await router.stop() == 0
    age_messages(folders, seconds=100)
    code, _ = await folders.outcome("--maintenance", message_ttl=50, expire_messages_on_start="off")
    assert code == 0
    assert len(folders.lines(MESSAGE_LOG)) == 1
    code, log = await folders.outcome("--maintenance", message_ttl=50)
    assert code == 0
    assert "removed 1 expired messages and 0 expired notifications" in log
    assert folders.lines(MESSAGE_LOG) == []
    assert folders.names() == STOPPED
    values = parse_statistics((folders.store / STATISTICS).read_text()).values
    assert (values["msgSent"], values["msgExpired"], values["qCount"]) == (1, 1, 1)


def age_messages(folders: SmpFolders, *, seconds: int) -> None:
    aged = []
    for line in folders.lines(MESSAGE_LOG):
        words = line.split(b" ")
        words[3] = b"%d" % (int(words[3]) - seconds)
        aged.append(b" ".join(words) + b"\n")
    (folders.store / MESSAGE_LOG).write_bytes(b"".join(aged))


async def test_restore_messages_off_keeps_queues_and_no_messages(folders: SmpFolders) -> None:
    async with serving(folders) as (router, _):
        client = await router.connect()
        queue = await client.secured_queue()
        assert await client.send_message(queue, b"before") == OK
        assert await router.stop() == 0
    for stop in (True, False):
        async with serving(folders, restore_messages="off") as (router, operator):
            client = await router.connect()
            info = await client.expect(QueueInspected, InspectQueue(), queue.recipient_id, queue.key)
            assert json.loads(info.json)["qiSize"] == 0
            assert await client.send_message(queue, b"meanwhile") == OK
            assert await operator.ask("save") == "server state saved!"
            assert isinstance(await client.ask(Subscribe(), queue.recipient_id, queue.key), Subscribed)
            assert queue.body(await client.message(queue)) == b"meanwhile"
            if stop:
                assert await router.stop() == 0
        assert folders.names() == {STORE_LOG, LOCK, STATISTICS, NOTIFICATION_LOG}  # which was empty before
    async with serving(folders) as (router, _):
        client = await router.connect()
        info = await client.expect(QueueInspected, InspectQueue(), queue.recipient_id, queue.key)
        assert json.loads(info.json)["qiSize"] == 0


async def test_a_broken_line_stops_the_start_unless_it_is_to_be_skipped(folders: SmpFolders) -> None:
    async with serving(folders) as (router, _):
        queue = await (await router.connect()).secured_queue()
        assert await router.stop() == 0
    path = folders.store / STORE_LOG
    path.write_bytes(b"BROKEN LINE\n" + path.read_bytes())
    code, log = await folders.outcome()
    assert code == 1
    assert log.startswith(f"tocsin: {path}, line 1: ")
    assert "--skip-broken-lines" in log
    code, log = await folders.outcome("--maintenance", "--skip-broken-lines")
    assert code == 0
    assert (
        f"{path}, line 1: unknown kind of record; a newer version may have written it: update Tocsin; SKIPPED"
        in log
    )
    assert (folders.store / f"{STORE_LOG}.broken").read_bytes() == b"BROKEN LINE\n"
    async with serving(folders) as (router, _):
        assert await (await router.connect()).send_message(queue, b"hello") == OK


async def test_changes_that_the_reference_has_overtaken_stop_the_start(folders: SmpFolders) -> None:
    async with serving(folders) as (router, operator):
        client = await router.connect()
        queue = await client.secured_queue()
        assert await client.send_message(queue, b"hello") == OK
        assert await operator.ask("save") == "server state saved!"
        assert await client.send_message(queue, b"again") == OK
        await router.kill()
    (folders.store / MESSAGE_LOG).write_bytes(b"")  # the reference delivered what it knew
    code, log = await folders.outcome()
    assert code == 1
    assert "has changes since snapshots that are gone" in log
    assert log.endswith("--set-aside-stale-changes to continue without them; they are kept in a file\n")
    code, log = await folders.outcome("--maintenance", "--set-aside-stale-changes")
    assert code == 0
    assert "is not restored; it is kept as" in log
    assert folders.lines(MESSAGE_LOG) == []


async def test_a_second_router_on_the_same_folder_is_refused(folders: SmpFolders) -> None:
    async with serving(folders) as (router, _):
        for arguments in ((), ("--maintenance",)):
            code, log = await folders.outcome(*arguments)
            assert code == 1
            holder = f"process {router._process.pid}"
            refusal = f"another router uses {folders.store} ({LOCK} is locked by {holder}): stop it first"
            assert log == f"tocsin: {refusal}\n"
        assert isinstance(await router.connect(), SmpTestClient)  # the first one is not disturbed


@pytest.mark.parametrize("which", ["port", "control_port", "prometheus_port"])
async def test_an_occupied_port_is_named_in_one_line(folders: SmpFolders, which: str) -> None:
    with socket.socket() as occupied:
        occupied.bind((HOST, 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        code, log = await folders.outcome(**{which: port})
    assert code == 1
    last = log.splitlines()[-1]
    assert "address already in use" in last.lower()
    assert last == (
        f"tocsin: cannot listen on {HOST} port {port}: {os.strerror(errno.EADDRINUSE)}; "
        "choose another port, or stop the program that uses it"
    )
    assert "Traceback" not in log
    assert "serving" not in log
    assert folders.names() == STOPPED


async def test_missing_certificates_are_named_in_one_line(folders: SmpFolders) -> None:
    (folders.config / "server.key").unlink()
    code, log = await folders.outcome()
    assert code == 1
    assert "Traceback" not in log
    assert "server.key" in log.splitlines()[-1]


async def test_sigterm_right_after_the_router_serves_is_a_graceful_stop(folders: SmpFolders) -> None:
    for _ in range(3):
        router = await folders.start()
        assert await router.stop() == 0
        assert CHANGE_LOG not in folders.names()


async def test_a_running_router_is_tidied_up(folders: SmpFolders) -> None:
    """In this process: what a stop leaves behind."""
    before = asyncio.all_tasks()
    async with folders.run(prometheus_port=0) as router:
        await router.connect()
        await until(lambda: len(router.running.router.peers) == 1)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_the_router_reports_that_it_is_ready_until_it_stops(folders: SmpFolders) -> None:
    async with serving(folders, prometheus_port=0) as (router, _):
        for path in (LIVE_PATH, READY_PATH):
            assert await get_page(HOST, router.metrics_port, path, PATIENCE) == (200, "ok\n")
        port = router.metrics_port
    with pytest.raises(OSError, match=r"refused|failed"):
        await get_page(HOST, port, READY_PATH, PATIENCE)


async def test_r4_metrics_are_written_to_a_file(folders: SmpFolders) -> None:
    """smp-tests.md 6; for collectors that read files."""
    async with folders.run(prometheus_interval=1) as router:
        await until(lambda: (folders.store / "smp-server-metrics.txt").exists())
        assert len(router.running.router.peers) == 0
    assert "# TYPE smp_queues gauge" in (folders.store / "smp-server-metrics.txt").read_text()
