"""A compact log gives the same store as the long one, for logs of stores and for nonsensical logs."""

from __future__ import annotations

import argparse
import json
import random
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store.samples import (
    OTHER_ROUTER,
    ROUTER,
    device_token,
    filler,
    queue,
    subscription,
    token,
)
from tests.unit.smp_router.store.postgres.opened_stores import contents
from tests.unit.smp_router.store.samples import a_link, a_notifier, a_queue, a_service, some_bytes
from tocsin.cli.pipeline import compact as compact_command
from tocsin.errors import ConfigError, StoreError
from tocsin.ntf_router.store.logs.log_reading import STORE_LOG
from tocsin.ntf_router.store.logs.store_files import NtfFolderStore, open_ntf_store, read_ntf_store
from tocsin.pipeline.compaction.store_logs import first_of_groups
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState
from tocsin.protocol.sessions import ServiceRole
from tocsin.smp_router.store.logs.log_reading import STORE_LOG as SMP_STORE_LOG
from tocsin.smp_router.store.logs.store_files import read_smp_store
from tocsin.smp_router.store.logs.store_log import (
    AddServiceLine,
    CreateQueueLine,
    DeleteQueueLine,
    StoreLogRecord,
)
from tocsin.smp_router.store.logs.store_log_changes import (
    ChangeRecipientKeysLine,
    DeleteLinkLine,
    DeleteNotifierLine,
    SecureQueueLine,
    SetLinkLine,
    SetNotifierLine,
    SetQueueServiceLine,
    SetTimeLine,
    SuspendQueueLine,
    UnblockQueueLine,
)
from tocsin.smp_router.store.records import NotifierRecord, QueueLink, QueueRecord

pytestmark = pytest.mark.timeout(180)
SHARED = ("device", "queue", "subscription")


@pytest.fixture(autouse=True)
def keep_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job would stop the session of all tests."""
    monkeypatch.setattr("tocsin.pipeline.jobs.compact.spark_session", lambda _: nullcontext(spark))


def compact(log: Path, out: Path, *more: str) -> int:
    parser = argparse.ArgumentParser()
    compact_command.add_arguments(parser)
    return compact_command.run(parser.parse_args([str(log), "--out", str(out), "--json", *more]))


async def do_something(store: NtfFolderStore, chance: random.Random, shared: str) -> None:
    """Tokens get in each other's way by one kind of thing only: devices, queues or ids of subscriptions."""
    number, name, router = chance.randrange(12), chance.randrange(5), chance.choice((ROUTER, OTHER_ROUTER))
    owner = token(number, device_token(number % 4 if shared == "device" else number))
    device = device_token(chance.randrange(5) if shared == "device" else (number, chance.randrange(2)))
    queue_name = name if shared == "queue" else (number, name)
    subscription_name = name if shared == "subscription" else (number, name, chance.randrange(2))
    notifier_id = queue(queue_name).notifier_id
    statuses = (SubscriptionState.ACTIVE, SubscriptionState.AUTH, SubscriptionFailed("SMP error QUOTA x"))
    match chance.randrange(12):
        case 0 | 1:
            await add_token(store, owner)
        case 2:
            await store.activate_token(owner.token_id, owner.code)
        case 3:
            await store.replace_token(owner.token_id, device, b"code", 7)
        case 4:
            await store.set_cron(owner.token_id, chance.randrange(100), 5)
        case 5:
            await store.note_use(owner.token_id, 86_400 * chance.randrange(5))
        case 6:
            await store.delete_token(owner.token_id)
        case 7 | 8:
            made = subscription(subscription_name, owner, router)
            await store.add_subscription(replace(made, queue=queue(queue_name, router)))
        case 9:
            await store.set_statuses(router, [(notifier_id, chance.choice(statuses))])
        case 10:
            await store.subscribed(router, [notifier_id], chance.choice((None, filler("service", 24))))
        case _:
            await store.delete_subscription(filler(("subscription", subscription_name), 24))


def new_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def ntf_log(folder: Path, shared: str) -> Path:
    """As a store wrote it."""
    chance, store = random.Random(shared), open_ntf_store(new_folder(folder))
    for _ in range(600):
        await do_something(store, chance, shared)
    await store.close()
    return folder / STORE_LOG


def ntf_contents(log: Path, folder: Path) -> tuple[object, ...]:
    """Of a store that has this log alone, and how many lines were about nothing."""
    folder.mkdir()
    (folder / STORE_LOG).write_bytes(log.read_bytes())
    store, report = read_ntf_store(folder)
    return (
        {each.token_id: each for each in store.all_tokens()},
        {each.subscription_id: each for each in store.all_subscriptions()},
        dict(store.all_services()),
        report.skipped,
    )


@pytest.mark.parametrize("shared", SHARED)
async def test_a_compact_log_of_an_ntf_router_gives_the_same_store(
    shared: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = await ntf_log(tmp_path / "written", shared)
    expected = ntf_contents(log, tmp_path / "long")
    out = tmp_path / "compact.log"
    assert compact(log, out) == 0
    said = json.loads(capsys.readouterr().out)
    found = ntf_contents(out, tmp_path / "short")
    assert found == expected
    assert expected[3] == said["lines_about_nothing"] == 0
    tokens, subscriptions = expected[0], expected[1]
    assert isinstance(tokens, dict)
    assert isinstance(subscriptions, dict)
    assert (said["tokens"], said["subscriptions"]) == (len(tokens), len(subscriptions))
    assert tokens
    assert subscriptions
    assert len(out.read_bytes().splitlines()) < len(log.read_bytes().splitlines()) / 2
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.parametrize("shared", SHARED)
async def test_lines_in_any_order_are_read_as_the_router_reads_them(
    shared: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = await ntf_log(tmp_path / "written", shared)
    lines = log.read_bytes().splitlines()
    random.Random(6).shuffle(lines)  # of this seed, tokens read apart would have others
    log.write_bytes(b"\r\n".join(lines) + b"\nTDELETE torn")
    expected = ntf_contents(log, tmp_path / "long")
    assert compact(log, tmp_path / "compact.log") == 0
    assert json.loads(capsys.readouterr().out)["lines_about_nothing"] == expected[3] != 0
    assert ntf_contents(tmp_path / "compact.log", tmp_path / "short")[:3] == expected[:3]


def smp_lines(chance: random.Random, shared: str) -> Iterator[bytes]:
    """Of queues that get in each other's way by one kind of id only."""
    queues = [a_queue() for _ in range(8)]
    if shared == "sender":
        queues = [replace(each, sender_id=queues[n % 2].sender_id) for n, each in enumerate(queues)]
    notifiers: dict[QueueRecord, tuple[NotifierRecord, ...]] = {each: (a_notifier(),) for each in queues}
    links: dict[QueueRecord, tuple[QueueLink, ...]] = {each: (a_link(),) for each in queues}
    if shared == "notifier":
        notifiers = dict.fromkeys(queues, (a_notifier(), a_notifier()))
    if shared == "link":
        links = dict.fromkeys(queues, (a_link(), a_link()))
    service = a_service()
    yield AddServiceLine(service).encode()
    for _ in range(300):
        each = chance.choice(queues)
        rid = each.recipient_id
        lines: list[StoreLogRecord] = [
            CreateQueueLine(each),
            SecureQueueLine(rid, some_bytes(44)),
            ChangeRecipientKeysLine(rid, (some_bytes(44), some_bytes(44))),
            SetLinkLine(rid, chance.choice(links[each])),
            DeleteLinkLine(rid),
            SetNotifierLine(rid, chance.choice(notifiers[each])),
            DeleteNotifierLine(rid),
            SuspendQueueLine(rid),
            UnblockQueueLine(rid),
            DeleteQueueLine(rid),
            SetTimeLine(rid, chance.randrange(1000)),
            SetQueueServiceLine(rid, ServiceRole.NOTIFIER, chance.choice((None, service.service_id))),
            SetQueueServiceLine(rid, ServiceRole.MESSAGING, service.service_id),
        ]
        yield chance.choice(lines).encode()


@pytest.mark.parametrize("shared", ["sender", "notifier", "link"])
def test_a_compact_log_of_an_smp_router_gives_the_same_store(
    shared: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long, short = tmp_path / "long", tmp_path / "short"
    long.mkdir()
    short.mkdir()
    lines = smp_lines(random.Random(7), shared)  # of this seed, queues read apart would be others
    (long / SMP_STORE_LOG).write_bytes(b"".join(line + b"\n" for line in lines))
    assert compact(long / SMP_STORE_LOG, short / SMP_STORE_LOG) == 0
    expected, report = read_smp_store(long)
    found, of_short = read_smp_store(short)
    assert contents(found) == contents(expected)
    assert expected.queue_count()
    said = json.loads(capsys.readouterr().out)
    assert (said["lines_about_nothing"], of_short.skipped) == (report.skipped, 0)


async def test_what_cannot_be_done_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = await ntf_log(tmp_path / "written", "queue")
    out = tmp_path / "out.log"
    with pytest.raises(ConfigError, match="is the log itself"):
        compact(log, log)
    with pytest.raises(ConfigError, match="no store log at"):
        compact(tmp_path / "ntf-server-store.log", out)
    with pytest.raises(ConfigError, match="add --router"):
        compact(tmp_path / "some.log", out)
    running = open_ntf_store(log.parent)
    with pytest.raises(StoreError, match="another router uses"):
        compact(log, out)
    await running.close()
    with log.open("ab") as file:
        file.write(b"TSTATUS no_such_status x\nHELLO\n")
    with pytest.raises(StoreError, match=r"2 lines .* cannot be read"):
        compact(log, out)
    assert not out.exists()
    assert compact(log, out, "--skip-broken-lines", "--dry-run") == 0
    assert json.loads(capsys.readouterr().out)["broken_lines"] == 2
    assert not out.exists()


def test_groups_are_those_that_hang_together() -> None:
    groups = first_of_groups([(1, 2), (3, 4), (2, 5), (6, 1)])
    assert groups[1] == groups[2] == groups[5] == groups[6] != groups[3] == groups[4]
