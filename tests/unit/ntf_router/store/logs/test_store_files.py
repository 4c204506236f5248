"""The folder of an NTF store: the reference's formats, crashes at each step, broken lines, locks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store import samples
from tests.unit.ntf_router.store.opened_stores import abandon
from tocsin.crypto.keys import X25519PrivateKey
from tocsin.durable.log_fields import BadLogLine, encode_field
from tocsin.durable.log_files import AppendOnlyFile
from tocsin.errors import StoreError
from tocsin.ntf_router.store.interface import WantedPage
from tocsin.ntf_router.store.logs.log_reading import CHANGE_LOG, LAST_NOTIFICATIONS, LOCK, STATE, STORE_LOG
from tocsin.ntf_router.store.logs.store_files import NtfOpenOptions, open_ntf_store, read_ntf_store
from tocsin.ntf_router.store.logs.store_log import (
    ServiceSet,
    SubscriptionAdded,
    SubscriptionStatusSet,
    TokenAdded,
    decode_ntf_store_line,
)
from tocsin.ntf_router.store.records import Accounting
from tocsin.protocol.ntf.statuses import SubscriptionFailed, SubscriptionState

SERVICE = samples.filler("service", 24)


def text(data: bytes) -> str:
    return encode_field(data).decode()


def found(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(folder.glob(pattern))


def contents(folder: Path) -> dict[str, bytes]:
    """Of all files but the lock."""
    return {path.name: path.read_bytes() for path in found(folder) if path.name != LOCK}


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in found(folder)}


def lines(folder: Path, name: str = STORE_LOG) -> list[str]:
    return (folder / name).read_text("latin-1").splitlines()


async def test_changes_are_written_as_the_reference_does(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    owner = samples.token("a", cron_minutes=0, status=samples.REGISTERED)
    dh_key = X25519PrivateKey(owner.dh_private_key)
    await add_token(store, owner)
    added = samples.subscription("q", owner)
    await store.add_subscription(added)
    await store.activate_token(owner.token_id, owner.code)
    await store.subscribed(samples.ROUTER, [added.queue.notifier_id], SERVICE)
    await store.set_statuses(
        samples.ROUTER, [(added.queue.notifier_id, SubscriptionFailed("SMP error QUOTA"))]
    )
    await store.forget_service(samples.ROUTER)
    await store.set_cron(owner.token_id, 30, 5)
    await store.note_use(owner.token_id, 86_400)
    new = samples.device_token("new")
    await store.replace_token(owner.token_id, new, b"n" * 32, 5)
    await store.delete_subscription(added.subscription_id)
    await store.delete_token(owner.token_id)
    abandon(store)
    token_id, subscription_id = text(owner.token_id), text(added.subscription_id)
    address = f"smp://{text(samples.ROUTER.key_hash)}@smp.example.com,abc.onion"
    assert lines(tmp_path) == [
        f"TCREATE tknId={token_id} token=apns_prod {owner.device_token.token.decode()} tokenStatus=REGISTERED "
        f"verifyKey={text(owner.verify_key)} dhKeys={text(dh_key.public.der)} {text(dh_key.der)} "
        f"dhSecret={text(owner.dh_secret)} regCode={text(owner.code)} cron=0 updatedAt=1699920000",
        f"SCREATE subId={subscription_id} smpQueue={address}/{text(added.queue.notifier_id)} "
        f"notifierKey={text(added.notifier_key)} tknId={token_id} subStatus=NEW serviceAssoc=F",
        f"TSTATUS {token_id} ACTIVE",
        f"SERVICE {address} service={text(SERVICE)}",
        f"SSTATUS {subscription_id} ACTIVE service=T",
        f"SSTATUS {subscription_id} ERR SMP error QUOTA",
        f"SERVICE {address} service=off",
        f"TCRON {token_id} 30",
        f"TTIME {token_id} 86400",
        f"TUPDATE {token_id} apns_prod {new.token.decode()} {text(b'n' * 32)}",
        f"SDELETE {subscription_id}",
        f"TDELETE {token_id}",
    ]


@pytest.mark.parametrize(
    "change",
    [
        TokenAdded(samples.token("a", updated_at=None, registered_at=0)),
        SubscriptionAdded(
            samples.subscription("q", samples.token("a"), status=SubscriptionFailed("a b serviceAssoc=T"))
        ),
        SubscriptionAdded(
            samples.subscription(
                "q", samples.token("a"), status=SubscriptionState.SERVICE, service_associated=True
            )
        ),
        SubscriptionStatusSet(b"s" * 24, SubscriptionFailed(""), associated=False),
        SubscriptionStatusSet(b"s" * 24, SubscriptionFailed("x service=T"), associated=False),
        ServiceSet(samples.ROUTER, None),
    ],
)
def test_a_line_is_read_as_it_was_written(
    change: TokenAdded | SubscriptionAdded | SubscriptionStatusSet | ServiceSet,
) -> None:
    assert decode_ntf_store_line(change.encode()) == change


def test_the_text_of_an_error_does_not_end_the_line() -> None:
    change = SubscriptionStatusSet(b"s" * 24, SubscriptionFailed("one\nTDELETE two\r"), associated=False)
    assert b"\n" not in change.encode()
    read = decode_ntf_store_line(change.encode())
    assert read == SubscriptionStatusSet(b"s" * 24, SubscriptionFailed("one TDELETE two"), associated=False)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "TCREATE",
        "NOSUCH x",
        "TSTATUS AAAA NOSUCH",
        "TSTATUS AAAA",
        "TUPDATE AAAA apns_nosuch 00 AAAA",
        "TCRON AAAA x",
        "SSTATUS AAAA",
        "SCREATE subId=AAAA smpQueue=x notifierKey=AAAA tknId=AAAA subStatus=NEW",
        "SERVICE smp://x service=off",
        "SERVICE ntf://AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=@x service=off",
    ],
)
def test_what_is_no_line_is_refused(line: str) -> None:
    with pytest.raises(BadLogLine):
        decode_ntf_store_line(line.encode())


async def test_last_notifications_are_left_for_the_reference(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    owner = await samples.filled(store, "a", "q1", "q2")
    await store.add_notifications(
        samples.ROUTER, [samples.received("q1", 1, at=10.75), samples.received("q2", 2, at=11.0)]
    )
    await store.close()
    one = samples.received("q1", 1)
    first = (
        f"v1 {text(owner.token_id)} smp://{text(samples.ROUTER.key_hash)}@smp.example.com,abc.onion"
        f"/{text(one.notifier_id)} 10 {text(one.nonce)} {text(one.sealed_meta)}"
    )
    assert lines(tmp_path, LAST_NOTIFICATIONS)[0] == first
    assert len(lines(tmp_path, LAST_NOTIFICATIONS)) == 2


async def test_the_files_of_the_reference_alone_are_read(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    owner = await samples.filled(store, "a", "q1", "q2", cron_minutes=40)
    await store.add_notifications(
        samples.ROUTER, [samples.received("q1", 1, at=10.75), samples.received("q2", 2, at=11.0)]
    )
    await store.close()
    (tmp_path / STATE).unlink()
    store = open_ntf_store(tmp_path)
    again = await store.token(owner.token_id)
    assert again is not None
    assert (again.cron_minutes, again.registered_at) == (40, 0)
    assert (await store.counts()).notifications == 2
    assert await store.accounting() == Accounting()
    abandon(store)


async def test_a_compact_log_stays_as_it_is_and_others_are_made_compact(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    owner = await samples.filled(store, "a", "q1", status=samples.REGISTERED)
    await store.activate_token(owner.token_id, owner.code)
    await store.subscribed(samples.ROUTER, [samples.queue("q1").notifier_id], SERVICE)
    await store.close()
    written = lines(tmp_path)
    await open_ntf_store(tmp_path, now=0).close()
    compact = lines(tmp_path)
    assert [line.split()[0] for line in compact] == ["TCREATE", "SCREATE", "SERVICE"]
    assert "tokenStatus=ACTIVE" in compact[0]
    [backup] = found(tmp_path, f"{STORE_LOG}.*Z")
    assert backup.read_text().splitlines() == written
    inode = (tmp_path / STORE_LOG).stat().st_ino
    await open_ntf_store(tmp_path, now=1).close()
    assert (tmp_path / STORE_LOG).stat().st_ino == inode
    assert len(found(tmp_path, f"{STORE_LOG}.*")) == 1


async def test_resubscribing_after_a_restart_writes_nothing_new(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    await samples.filled(store, "a", "q1")
    await store.subscribed(samples.ROUTER, [samples.queue("q1").notifier_id], None)
    await store.close()
    store = open_ntf_store(tmp_path)
    size = (tmp_path / STORE_LOG).stat().st_size
    await store.queues_to_subscribe(samples.ROUTER, WantedPage(None, 10, with_associated=False))
    assert await store.subscribed(samples.ROUTER, [samples.queue("q1").notifier_id], None) == 1
    await store.disconnected(samples.ROUTER)
    assert await store.subscribed(samples.ROUTER, [samples.queue("q1").notifier_id], None) == 1
    assert (tmp_path / STORE_LOG).stat().st_size == size
    await store.set_statuses(samples.ROUTER, [(samples.queue("q1").notifier_id, SubscriptionState.END)])
    await store.subscribed(samples.ROUTER, [samples.queue("q1").notifier_id], None)
    abandon(store)
    assert [line.split()[2] for line in lines(tmp_path)[-2:]] == ["END", "ACTIVE"]


@pytest.mark.parametrize("torn", [b"TSTATUS", b"TSTATUS AAAA ACTIVE"])
async def test_an_unfinished_last_line_is_dropped(tmp_path: Path, torn: bytes) -> None:
    store = open_ntf_store(tmp_path)
    await samples.filled(store, "a", "q1")
    await store.add_notifications(samples.ROUTER, [samples.received("q1")])
    abandon(store)
    [part] = found(tmp_path, f"{CHANGE_LOG}.*")
    for path in (tmp_path / STORE_LOG, part):
        with path.open("ab") as file:
            file.write(torn)
    store = open_ntf_store(tmp_path)
    assert store.report.torn_bytes == 2 * len(torn)
    assert (await store.accounting()).pending == 1
    await samples.filled(store, "b")
    abandon(store)
    assert read_ntf_store(tmp_path)[1].tokens == 2


@pytest.mark.parametrize("name", [STORE_LOG, f"{CHANGE_LOG}.1", STATE, LAST_NOTIFICATIONS])
async def test_a_broken_line_is_refused_by_number_or_skipped_if_asked(tmp_path: Path, name: str) -> None:
    store = open_ntf_store(tmp_path)
    await samples.filled(store, "a", "q1")
    await store.add_notifications(samples.ROUTER, [samples.received("q1")])
    if name in (STATE, LAST_NOTIFICATIONS):
        await store.close()
    else:
        abandon(store)
    if name == LAST_NOTIFICATIONS:
        (tmp_path / STATE).unlink()
    path = tmp_path / name
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, b"secret nonsense\n", *rest]))
    before = contents(tmp_path)
    with pytest.raises(BadLogLine, match=f"{name}, line 2") as caught:
        open_ntf_store(tmp_path)
    assert "secret" not in str(caught.value)
    assert before == contents(tmp_path)
    store = open_ntf_store(tmp_path, NtfOpenOptions(skip_broken_lines=True))
    assert store.report.broken == 1
    assert (tmp_path / f"{name}.broken").read_bytes() == b"secret nonsense\n"
    assert (await store.counts()).notifications == 1
    await store.close()
    store = open_ntf_store(tmp_path)
    assert (await store.counts()).notifications == 1
    await store.close()


async def test_one_router_at_a_time(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    with pytest.raises(StoreError, match="another router uses"):
        open_ntf_store(tmp_path)
    with pytest.raises(StoreError, match="another router uses"):
        read_ntf_store(tmp_path)
    await store.close()
    await open_ntf_store(tmp_path).close()


async def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    await samples.filled(store, "a", "q1")
    assert modes(tmp_path) == {0o600}
    await store.close()
    assert modes(tmp_path) == {0o600}


async def test_a_crash_at_any_step_of_saving_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    store = open_ntf_store(folder)
    owner = await samples.filled(store, "a", "q1", "q2")
    await store.add_notifications(
        samples.ROUTER, [samples.received("q1", 1), samples.received("q1", 2), samples.received("q2", 3)]
    )
    await store.settle([samples.settled(owner, "q2", 3)])
    expected = Accounting(received=3, accepted=1, superseded=1, pending=1)
    copies: list[Path] = []

    def copied() -> None:
        copy = tmp_path / str(len(copies))
        shutil.copytree(folder, copy)
        copies.append(copy)

    for name in ("replace", "fsync", "unlink"):
        real = getattr(os, name)

        def step(*arguments: object, real=real, **named: object) -> object:  # type: ignore[no-untyped-def]
            copied()
            result = real(*arguments, **named)
            copied()
            return result

        monkeypatch.setattr(os, name, step)
    await store.save()
    copied()
    monkeypatch.undo()
    assert len(copies) > 8
    for copy in copies:
        again = open_ntf_store(copy)
        assert await again.accounting() == expected
        [push] = await again.due_pushes([owner.token_id])
        assert [each.pending for each in push.notifications] == [True, False]
        abandon(again)
    abandon(store)


async def test_a_grown_changes_log_becomes_a_state(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path, NtfOpenOptions(change_log_limit=1000))
    await samples.filled(store, "a", "q1")
    await store.maintain()
    assert (tmp_path / f"{CHANGE_LOG}.1").exists()
    for number in range(10):
        await store.add_notifications(samples.ROUTER, [samples.received("q1", number)])
    await store.maintain()
    assert not (tmp_path / f"{CHANGE_LOG}.1").exists()
    await store.add_notifications(samples.ROUTER, [samples.received("q1", 11)])
    abandon(store)
    store = open_ntf_store(tmp_path)
    assert await store.accounting() == Accounting(received=11, superseded=10, pending=1)
    await store.close()


async def test_changes_made_while_saving_are_kept_once(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    await samples.filled(store, "a", *range(20))
    for number in range(20):
        # The line is in the batch of the old part when the new part begins.
        store._add_notification(0, samples.received(number, number))
        await store.save()
    await store.check()
    abandon(store)
    store = open_ntf_store(tmp_path)
    assert await store.accounting() == Accounting(received=20, pending=20)
    await store.close()


async def test_a_removal_that_reached_only_the_store_log_still_adds_up(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    owner = await samples.filled(store, "a", "q1")
    await store.add_notifications(samples.ROUTER, [samples.received("q1", 1), samples.received("q1", 2)])
    before = (tmp_path / f"{CHANGE_LOG}.1").read_bytes()
    await store.delete_token(owner.token_id)
    abandon(store)
    (tmp_path / f"{CHANGE_LOG}.1").write_bytes(before)
    store = open_ntf_store(tmp_path)
    assert await store.accounting() == Accounting(
        received=2, superseded=1, failed={"subscription_removed": 1}
    )
    await store.close()


async def test_after_a_write_that_failed_for_good_nothing_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_ntf_store(tmp_path)

    def full(_self: AppendOnlyFile, _lines: bytes) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(AppendOnlyFile, "append", full)
    with pytest.raises(StoreError, match="disk full"):
        await add_token(store, samples.token("a"))
    monkeypatch.undo()
    with pytest.raises(StoreError):
        await store.check()
    with pytest.raises(StoreError):
        await store.close()
    store = open_ntf_store(tmp_path)
    assert (await store.counts()).tokens == 0
    await store.close()


async def test_of_two_tokens_with_one_registration_the_better_one_stays(tmp_path: Path) -> None:
    """Logs of the reference may have them (ntf.md 5.4)."""
    worse = samples.token("a", status=samples.REGISTERED)
    better = samples.token("b", device=worse.device_token, verify_key=worse.verify_key, status=samples.ACTIVE)
    third = samples.token("c", device=worse.device_token, verify_key=worse.verify_key, status=samples.ACTIVE)
    log = [TokenAdded(each).encode() + b"\n" for each in (worse, better, third)]
    log += [
        SubscriptionAdded(samples.subscription(each.code, each)).encode() + b"\n" for each in (worse, better)
    ]
    (tmp_path / STORE_LOG).write_bytes(b"".join(log))
    store, report = read_ntf_store(tmp_path)
    assert [record.token_id for record in store.all_tokens()] == [better.token_id]
    assert (report.tokens, report.subscriptions, report.skipped) == (1, 1, 3)
