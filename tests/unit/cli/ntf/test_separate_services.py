"""`tocsin ntf separate-services`, and the file that holds what it leads to."""

from __future__ import annotations

import asyncio
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.cli.ntf.test_group import config, folder, init, no_settings_in_the_environment, router
from tests.unit.ntf_router.store.samples import ROUTER, filled, queue
from tocsin.cli.main import run
from tocsin.errors import StoreError
from tocsin.ntf_router.settings.files import load_ntf_settings
from tocsin.ntf_router.store.logs.log_reading import SERVICE_KEYS
from tocsin.ntf_router.store.logs.store_files import open_ntf_store
from tocsin.ntf_router.subscriber.service_certificates import new_service_credentials

__all__ = ["folder", "no_settings_in_the_environment", "router"]


def test_a_new_installation_separates_its_services(folder: Path) -> None:
    assert init(folder) == 0
    assert load_ntf_settings(folder / "ntf-server.ini", {}).subscriber.separate_services


def test_services_of_an_older_installation_are_ended(
    router: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = router.parent / "var"

    async def fill() -> None:
        store = open_ntf_store(data)
        await filled(store, "a", "q", "r")
        await store.subscribed(ROUTER, [queue("q").notifier_id, queue("r").notifier_id], b"s" * 24)
        await store.close()

    asyncio.run(fill())
    command = ["ntf", "separate-services", *config(router)]
    for arguments, words in ((["--dry-run"], "would move"), ([], "move")):
        assert run([*command, *arguments]) == 0
        assert f"1 SMP routers {words} to certificates of their own, with 2 queues" in capsys.readouterr().out
    assert run(command) == 0
    assert "0 SMP routers move" in capsys.readouterr().out


def test_it_is_refused_while_services_are_shared(router: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = router / "ntf-server.ini"
    file.write_text(file.read_text().replace("separate_services: on", "separate_services: off"))
    assert run(["ntf", "separate-services", *config(router)]) != 0
    assert "separate_services is off" in capsys.readouterr().err


async def test_only_the_owner_can_read_the_certificates(tmp_path: Path) -> None:
    store = open_ntf_store(tmp_path)
    await filled(store, "a", "q")
    await store.set_service_credentials(ROUTER, new_service_credentials(datetime.now(UTC)))
    await store.close()
    path = tmp_path / SERVICE_KEYS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(path.read_bytes()[:-20] + b"\n")
    with pytest.raises(StoreError, match=r"services\.keys, line 1"):
        open_ntf_store(tmp_path)
