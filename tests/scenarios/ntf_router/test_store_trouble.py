"""A disk that is full for a while: nothing is promised meanwhile, and service goes on afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.doubles.failing_disk import FailingDisk
from tests.doubles.ntf_harness import ntf_router, until
from tests.doubles.smp_harness import OK, smp_router
from tests.unit.ntf_router.delivery.test_delivery import conversation
from tests.unit.ntf_router.store.opened_stores import abandon
from tocsin.errors import StoreError
from tocsin.ntf_router.store import retry
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.protocol.error_codes import StoreFault
from tocsin.protocol.ntf.token_commands import CheckToken, SetPeriodicPush
from tocsin.protocol.ping import Ping, Pong
from tocsin.protocol.router_answers import Refused

TEMPORARY: Final = Refused(StoreFault("the store is not available, try again"))


async def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.02)
    folder = tmp_path / "store"
    folder.mkdir()
    store = open_ntf_store(folder)
    store._journal._patience = 0.02  # type: ignore[misc]
    disk = FailingDisk(folder, monkeypatch)
    async with smp_router(notification_interval=0.0) as smp, ntf_router(store) as ntf:
        device = await ntf.active_device()
        chat = await conversation(smp, ntf, device)
        await chat.send()
        await device.notifications()
        await until(lambda: not store.tables.notifications.accounting().pending)

        disk.fill()
        assert await device.ask(SetPeriodicPush(30)) == TEMPORARY
        with pytest.raises(StoreError, match="No space left on device"):
            await store.check()
        waiting = store._journal._appended
        for _ in range(3):
            assert await device.ask(SetPeriodicPush(40)) == TEMPORARY
            assert await device.ask(CheckToken()) == TEMPORARY
        assert store._journal._appended == waiting, "nothing gathers in memory"
        assert await device.client.ask(Ping()) == Pong()
        await chat.send()

        disk.heal()
        await until(lambda: store._journal.trouble is None)
        await store.check()
        assert await device.ask(SetPeriodicPush(50)) == OK
        await device.notifications()
        await until(lambda: not store.tables.notifications.accounting().pending)
        expected = store.all_totals()
    abandon(store)
    again = open_ntf_store(folder)
    assert again.all_totals() == expected
    assert expected.received == 2
    assert [token.cron_minutes for token in again.all_tokens()] == [50]
    abandon(again)
