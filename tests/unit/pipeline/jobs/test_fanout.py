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

from tests.unit.stores.ntf_samples import device_token, token
from tocsin.cli.pipeline import fanout as fanout_command
from tocsin.config.ntf_settings import ApnsEndpoint, ApnsSettings, NtfSettings, StoreKind
from tocsin.errors import ConfigError
from tocsin.pipeline.fanout.campaign_folder import CampaignFolder, CampaignToken
from tocsin.pipeline.fanout.campaign_push import PushedToken, plan_parts, push_parts
from tocsin.pipeline.fanout.campaign_pusher import FanoutPusher
from tocsin.pipeline.fanout.campaign_tokens import TokenSource
from tocsin.pipeline.fanout.notice import Notice
from tocsin.pipeline.lake.lake import Lake
from tocsin.pipeline.lake.tables import FANOUT_TABLE
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.statuses import TokenState, TokenStatus
from tocsin.push.fake.behaviours import Respond
from tocsin.push.fake.server import FakeApns, running_fake_apns
from tocsin.routers.ntf.handover_key import handover_key
from tocsin.stores.ntf_records import TokenRecord
from tocsin.stores.postgres.ntf_postgres_store import open_ntf_postgres_store

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
            assert await store.add_token(each)
    finally:
        await store.close()


class Campaign:
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
        wanted = fanout_command.source_of(self._settings, None, notice, 2_000_000_000)
        kind = fanout_command.kind_of(notice, wanted.providers)
        with fanout_command._opened(self._settings) as store:
            planner = fanout_command.begun(self.parts, self._keys, wanted, kind)
            counts = plan_parts(self._spark, planner, shards=2) if planner else None
            parts = fanout_command.finished(self.parts, kind)(counts)
            pusher = FanoutPusher(
                self.parts.folder, self._keys, CAMPAIGN, self._settings.apns, 500.0, 4_000_000_000, notice
            )
            return push_parts(
                self._spark,
                self._lake,
                CAMPAIGN,
                parts,
                pusher,
                shards=2,
                today=TODAY,
                record=wrapped(store.recorder(self.parts, reminders=notice is None)),
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
        campaign = Campaign(spark, lake, url, apns)
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
        campaign = Campaign(spark, lake, url, apns)
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
        campaign = Campaign(spark, lake, url, apns)
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


@pytest.mark.parametrize("shards", [1, 3, 7])
async def test_shares_of_tokens_are_disjoint_and_whole(url: str, shards: int) -> None:
    tokens = [due(f"t{number}") for number in range(40)]
    edges = [replace(due(f"edge {first}"), token_id=bytes([first]) + bytes(23)) for first in (0, 255)]
    await fill(url, [*tokens, *edges, token("another provider", cron_minutes=20)])
    source = TokenSource(url, "ntf_server", (TEST.text,), 2_000_000_000)
    shares = [
        [each.token_id async for page in source.pages(shard, shards) for each in page]
        for shard in range(shards)
    ]
    assert sorted(each for share in shares for each in share) == sorted(
        each.token_id for each in [*tokens, *edges]
    )
    assert all(share == sorted(share) for share in shares)
    assert await source.counts() == {TEST.text: 42}


def test_parts_hold_no_device_token_and_are_for_their_owner(tmp_path: Path) -> None:
    parts = CampaignFolder(tmp_path / "campaign", handover_key(tmp_path / "keys"))
    owner = due("a")
    parts.begin(b"postgresql://user:password@host/")
    one = CampaignToken(owner.token_id, TEST.text, owner.device_token.token, 7)
    assert parts.write_share(0, [[one]]) == {TEST.text: 1}
    for path in parts.folder.iterdir():
        assert owner.device_token.token not in path.read_bytes()
        assert b"password" not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
    assert parts.opened_source() == b"postgresql://user:password@host/"
    parts.finish({TEST.text: 1}, "reminder")
    assert sorted(path.name for path in parts.folder.iterdir()) == ["part-0000-000000.jsonl", "planned.json"]
    [name] = parts.names()
    [(_, found)] = parts.tokens(name)
    assert found == one


def test_a_share_that_is_written_again_leaves_nothing_of_the_first_attempt(tmp_path: Path) -> None:
    parts = CampaignFolder(tmp_path / "campaign", handover_key(tmp_path / "keys"))
    parts.begin(b"")
    tokens = [CampaignToken(bytes([number]), TEST.text, b"d", 0) for number in range(5)]
    assert parts.write_share(1, [tokens], part_tokens=2) == {TEST.text: 5}
    assert parts.write_share(0, [tokens[:1]], part_tokens=2) == {TEST.text: 1}
    assert len(parts.names()) == 4
    assert parts.write_share(1, [tokens[:3]], part_tokens=2) == {TEST.text: 3}
    assert len(parts.names()) == 3


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
