"""`fanout`: every due token is pushed to once for a campaign, also when it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.doubles.registered_tokens import add_token
from tests.unit.ntf_router.store.samples import device_token, token
from tocsin.cli.pipeline import fanout as fanout_command
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels.handover_key import handover_key
from tocsin.ntf_router.settings.settings import NtfSettings, StoreKind
from tocsin.ntf_router.store.postgres.postgres_store import open_ntf_postgres_store
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.pipeline.fanout.campaign import Campaign, campaign_store
from tocsin.pipeline.fanout.campaign_folder import CampaignFolder
from tocsin.pipeline.fanout.campaign_push import plan_parts, push_parts
from tocsin.pipeline.fanout.campaign_pusher import FanoutPusher, PushedToken
from tocsin.pipeline.fanout.options import FanoutOptions, Notice
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import FANOUT_TABLE
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.push.fake.behaviours import Respond
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.push.settings import ApnsEndpoint, ApnsSettings

TEST = PushProvider.APNS_TEST
CAMPAIGN = "2026-11-15"
TODAY = date(2026, 11, 15)
Record = Callable[[str, Sequence[PushedToken]], None]


class Killed(Exception):
    pass


def due(name: str) -> TokenRecord:
    return token(name, device_token(name, TEST), cron_minutes=20)


async def fill(url: str, tokens: Sequence[TokenRecord]) -> None:
    store = await open_ntf_postgres_store(url, "ntf_server", 2)
    try:
        for each in tokens:
            assert await add_token(store, each)
    finally:
        await store.close()


class CampaignRuns:
    """One run after another of the same campaign, as the command makes them."""

    def __init__(self, spark: SparkSession, lake: Lake, url: str, apns: FakeApns) -> None:
        self._spark = spark
        self._lake = lake
        endpoint = ApnsEndpoint(apns.host, apns.port, apns.ca_file)
        self._settings = NtfSettings(
            store_kind=StoreKind.URL, database_url=url, apns=ApnsSettings(endpoints={TEST.text: endpoint})
        )
        self._keys = lake.folder.with_name("lake-keys")
        self.parts = CampaignFolder(lake.folder / "_campaigns" / CAMPAIGN, handover_key(self._keys))

    def run(
        self, wrapped: Callable[[Record], Record] = lambda record: record, notice: Notice | None = None
    ) -> Counter[str]:
        options = FanoutOptions(CAMPAIGN, 500.0, notice)
        campaign = Campaign(self.parts.folder, self._keys, options.kind)
        with campaign_store(self._settings) as store:
            planner = campaign.begin(options.source(self._settings, 2_000_000_000))
            counts = plan_parts(self._spark, planner, shards=2) if planner else None
            parts = campaign.planned(counts)

            def record(part: str, outcomes: Sequence[PushedToken]) -> None:
                store.record(self.parts, part, outcomes, reminders=notice is None)

            pusher = FanoutPusher(self.parts.folder, self._keys, options, self._settings.apns, 4_000_000_000)
            return push_parts(
                self._spark,
                self._lake,
                CAMPAIGN,
                parts,
                pusher,
                shards=2,
                today=TODAY,
                record=wrapped(record),
            )


async def test_outcomes_reach_the_table_and_the_store(
    spark: SparkSession, lake: Lake, url: str, tmp_path: Path
) -> None:
    tokens = [due(f"t{number}") for number in range(6)]
    await fill(url, [*tokens, token("not due", device_token("not due", TEST))])
    async with running_fake_apns(tmp_path / "apns") as apns:
        gone, busy = tokens[0], tokens[1]
        apns.behave(Respond(400, "BadDeviceToken"), device_token=gone.device_token.token)
        apns.behave(Respond(503, "ServiceUnavailable"), device_token=busy.device_token.token)
        campaign = CampaignRuns(spark, lake, url, apns)
        assert await asyncio.to_thread(campaign.run) == {"accepted": 4, "invalid": 1, "retry": 1}
        assert len(apns.requests) == 6
        assert campaign.parts.planned is not None
        assert campaign.parts.planned.counts == {TEST.text: 6}
        assert campaign.parts.names() == []
        assert await asyncio.to_thread(campaign.run) == {}
        assert len(apns.requests) == 6
    rows = lake.table(FANOUT_TABLE).read(spark).collect()
    assert len({row.token for row in rows}) == 6
    assert not {row.token for row in rows} & {each.token_id.hex() for each in tokens}
    store = await open_ntf_postgres_store(url, "ntf_server", 2)
    try:
        left = [
            each.token_id
            async for page in store.cron_due(2_000_000_000)
            for each in page
            if not each.cron_sent_at
        ]
        assert left == [busy.token_id]
        invalid = await store.token(gone.token_id)
        assert invalid is not None
        assert invalid.status.state is TokenState.INVALID
    finally:
        await store.close()


async def test_a_run_that_is_killed_goes_on_with_the_rest(
    spark: SparkSession, lake: Lake, url: str, tmp_path: Path
) -> None:
    """After the first part is in the table, before the store has it: the part is recorded and not pushed again."""
    await fill(url, [due(f"t{number}") for number in range(7)])

    def killed(_record: Record) -> Record:
        def fail(_part: str, _outcomes: Sequence[PushedToken]) -> None:
            raise Killed

        return fail

    async with running_fake_apns(tmp_path / "apns") as apns:
        campaign = CampaignRuns(spark, lake, url, apns)
        with pytest.raises(Killed):
            await asyncio.to_thread(campaign.run, killed)
        assert 0 < len(apns.pushes) < 7
        assert len(campaign.parts.names()) == 2
        assert await asyncio.to_thread(campaign.run) == {"accepted": 7}
        assert len(apns.pushes) == 7
        assert len({push.header(b"apns-id") for push in apns.pushes}) == 7


async def test_a_notice_is_shown_on_every_active_device_once_and_leaves_reminders_due(
    spark: SparkSession, lake: Lake, url: str, tmp_path: Path
) -> None:
    waiting = replace(
        token("not active", device_token("not active", TEST)), status=TokenStatus(TokenState.CONFIRMED)
    )
    await fill(url, [due("a"), token("b", device_token("b", TEST)), waiting])
    notice = Notice("We move on Sunday.", "Router smp1")
    async with running_fake_apns(tmp_path / "apns") as apns:
        campaign = CampaignRuns(spark, lake, url, apns)
        assert await asyncio.to_thread(campaign.run, notice=notice) == {"accepted": 2}
        assert await asyncio.to_thread(campaign.run, notice=notice) == {}
        with pytest.raises(ConfigError, match="another notice"):
            await asyncio.to_thread(campaign.run, notice=Notice("Something else."))
        assert len(apns.pushes) == 2
        for push in apns.pushes:
            assert json.loads(push.payload) == {
                "aps": {"alert": {"title": "Router smp1", "body": "We move on Sunday."}}
            }
            assert push.header(b"apns-push-type") == b"alert"
        assert len({push.header(b"apns-id") for push in apns.pushes}) == 2
    store = await open_ntf_postgres_store(url, "ntf_server", 2)
    try:
        due_still = [each async for page in store.cron_due(2_000_000_000) for each in page]
        assert [each.cron_sent_at for each in due_still] == [None]
    finally:
        await store.close()


def command(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    fanout_command.add_arguments(parser)
    return fanout_command.run(parser.parse_args([str(each) for each in arguments]))


def write_ini(folder: Path, *lines: str) -> Path:
    path = folder / "ntf-server.ini"
    own = ["[TOCSIN]", "apns_prod_host: off", "apns_dev_host: off"]
    path.write_text("\n".join([*own, *lines]) + "\n")
    return path


async def test_a_dry_run_counts_by_provider_and_leaves_nothing(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(url, [due("a"), due("b"), token("c", cron_minutes=20), token("not due")])
    ini = write_ini(tmp_path, "[STORE_LOG]", f"db_connection: {url}")
    arguments = ("--config", ini, "--campaign", "x", "--dry-run", "--json", "--lake", tmp_path / "lake")
    assert await asyncio.to_thread(command, *arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["tokens"], told["apns_test"], told["apns_prod"]) == (3, 2, 1)
    noticed = ("--notice", "Hello", "--provider", "apns_prod")
    assert await asyncio.to_thread(command, *arguments, *noticed) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["tokens"], told["apns_prod"], "apns_test" in told) == (2, 2, False)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--campaign", "a/b"], "--campaign a/b"),
        (["--campaign", "x", "--rate", "0"], "--rate 0.0"),
        (["--campaign", "x"], "db_connection"),
        (["--campaign", "x", "--title", "T"], "--title"),
        (["--campaign", "x", "--notice", " "], "--notice is empty"),
        (["--campaign", "x", "--notice", "long" * 1024], "--notice is too long"),
    ],
)
def test_what_cannot_work_is_refused_by_name(tmp_path: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        command("--config", write_ini(tmp_path), *arguments)
    assert says in str(caught.value)
