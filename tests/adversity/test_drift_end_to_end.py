"""Drift between real routers is found and repaired while they run, and what waits is delivered when it is asked for."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.ntf_process import ADMIN_PASSWORD
from tests.doubles.spark_desk import SparkDesk
from tests.doubles.whole_delivery import Chat, Everything, everything
from tocsin.events.queue_exports import id_text
from tocsin.events.repair_plans import read_plan
from tocsin.ntf_router.settings.files import NTF_FILE
from tocsin.protocol.ntf.statuses import SubscriptionState
from tocsin.protocol.sessions import ServiceRole
from tocsin.push.fake.behaviours import Respond
from tocsin.smp_router.settings.files import SMP_FILE
from tocsin.smp_router.store.logs.log_reading import STORE_LOG
from tocsin.smp_router.store.logs.store_log_changes import DeleteNotifierLine, SetQueueServiceLine

pytestmark = pytest.mark.timeout(400)


class Commands:
    """Of the operator, with the settings of the running routers."""

    def __init__(self, parts: Everything, folder: Path, ntf: dict[str, Any], desk: SparkDesk) -> None:
        assert parts.ntf is not None
        self.parts = parts
        self._desk = desk
        self.folder = folder
        settings = {**ntf, "control_port": parts.ntf.control_port}
        self._environment = parts._ntf_folders.environment(**settings)
        self.ntf_config = ("--config", parts._ntf_folders.config / NTF_FILE.ini_file)
        self.smp_config = ("--config", parts._smp_folders.config / SMP_FILE.ini_file)

    async def tocsin(self, *arguments: object, code: int = 0) -> dict[str, Any]:
        """What it says in JSON, if it does."""
        if arguments[0] == "pipeline":
            return _said(await self._desk.run(*arguments[1:], code=code))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tocsin", *map(str, arguments)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        output, errors = await process.communicate()
        assert process.returncode == code, (output + errors).decode()[-3000:]
        return _said(output.decode())


def _said(output: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(output) if output.startswith("{") else {}
    return said


async def lose(parts: Everything, commands: Commands, unassociated: Chat, deleted: Chat) -> tuple[Path, Path]:
    """The SMP router forgets about two queues while it is stopped. Returns the exports of both routers."""
    assert parts.smp is not None
    await parts.smp.stop()
    lines = (
        SetQueueServiceLine(unassociated.queue.recipient_id, ServiceRole.NOTIFIER, None),
        DeleteNotifierLine(deleted.queue.recipient_id),
    )
    with (parts._smp_folders.store / STORE_LOG).open("ab") as file:
        file.write(b"".join(each.encode() + b"\n" for each in lines))
    subscriptions, notifiers = (
        commands.folder / "subscriptions.parquet",
        commands.folder / "notifiers.parquet",
    )
    await commands.tocsin("ntf", "store", "export-subscriptions", *commands.ntf_config, subscriptions)
    await commands.tocsin("smp", "store", "export-notifiers", *commands.smp_config, notifiers)
    await parts.start_smp()
    return subscriptions, notifiers


async def message(parts: Everything, chat: Chat) -> None:
    assert parts.smp is not None
    await parts._send(await parts.smp.connect(), chat)


async def test_a_queue_that_the_smp_router_forgot_is_notified_again_after_reconcile_and_repair(
    tmp_path: Path, url: str, desk: SparkDesk
) -> None:
    events = tmp_path / "ntf-events"
    ntf = {
        "store": "url",
        "db_connection": url,
        "event_log": events,
        "event_log_segment_seconds": 0.2,
        "control_port_admin_password": ADMIN_PASSWORD,
    }
    async with everything(tmp_path, ntf) as parts:
        assert parts.ntf is not None
        commands, chance = Commands(parts, tmp_path, ntf, desk), random.Random(1)
        traffic = asyncio.create_task(parts.traffic(chance))
        await asyncio.sleep(0.5)
        traffic.cancel()
        await asyncio.gather(traffic, return_exceptions=True)
        await parts.compare()
        forgotten, deleted = parts.chats[0], parts.chats[1]
        exports = await lose(parts, commands, forgotten, deleted)

        plan, lake = tmp_path / "plan.jsonl", tmp_path / "lake"
        arguments = ("--ntf", exports[0], "--smp", exports[1], "--plan", plan, "--lake", lake, "--json")
        said = await commands.tocsin("pipeline", "reconcile", *arguments, code=1)
        assert (said["not_associated"], said["missing_at_smp"], said["smp_routers_that_differ"]) == (1, 1, 1)
        assert {(each.notifier_id, each.action.value) for each in read_plan(plan)} == {
            (id_text(forgotten.notifier.notifier_id), "resubscribe"),
            (id_text(deleted.notifier.notifier_id), "recreate"),
        }
        said = await commands.tocsin("ntf", "repair", *commands.ntf_config, plan, "--json")
        assert (said["resubscribe_applied"], said["recreate_applied"]) == (1, 1)
        status = await deleted.device.subscription_status(deleted.subscription_id)
        assert status is SubscriptionState.AUTH
        parts.chats.remove(deleted)

        await message(parts, forgotten)
        with pytest.raises(AssertionError, match="answered, notified"):
            await parts.compare(2.0)
        answer = await parts.ntf.operator(f"auth {ADMIN_PASSWORD}", "resubscribe")
        assert answer[1] == "ok, 1 SMP routers"
        await parts.compare()

        await replay(parts, commands, forgotten, events, lake)


async def replay(parts: Everything, commands: Commands, chat: Chat, events: Path, lake: Path) -> None:
    """While the provider refuses, a notification waits; the running router takes it up."""
    assert parts.apns is not None
    parts.apns.behave(Respond(503, "ServiceUnavailable"), times=None)
    await message(parts, chat)
    async with asyncio.timeout(20):
        while not (await parts.accounting())["pending"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    await message(parts, parts.chats[5])
    await asyncio.sleep(1.0)  # segments of the event log are published
    request = commands.folder / "replay.jsonl"
    where = ("--lake", lake, "--json")
    await commands.tocsin("pipeline", "ingest", "--events", events, *where, "--available-now", "--build")
    said = await commands.tocsin("pipeline", "replay", *where, "--older-than", 0, "--out", request)
    assert said["without_an_end"] >= 1
    answer = await commands.tocsin("ntf", "replay", *commands.ntf_config, request, "--json")
    assert (answer["waiting"], answer["lost"]) == (said["without_an_end"], 0)
    assert "the running router delivers them: ok" in answer["delivery"]
