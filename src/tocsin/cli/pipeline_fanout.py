"""`tocsin pipeline fanout`."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tocsin.cli.fanout_parts import CampaignParts
from tocsin.cli.ntf_files import add_config_argument, settings_of
from tocsin.cli.ntf_providers import served_settings
from tocsin.cli.ntf_store import opened_store
from tocsin.cli.pipeline_options import add_job_options, job_options
from tocsin.config.ntf_settings import NtfSettings, StoreKind
from tocsin.errors import ConfigError
from tocsin.observability.pseudonyms import keys_folder
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus
from tocsin.routers.ntf.handover_key import handover_key
from tocsin.stores.ntf_records import TokenRecord
from tocsin.stores.ntf_store import NtfStore

if TYPE_CHECKING:
    from tocsin.pipeline.jobs.fanout import Pushed

NAME = "fanout"
SUMMARY = "remind all devices that are due to look for messages"
DESCRIPTION = (
    "Pushes a reminder to every token of a router's PostgreSQL whose periodic push is due, from Spark's executors, at "
    "a pace. Killed, the same campaign goes on with the rest; a push that is repeated has the same id. Accepted ones "
    "are recorded as sent and dead tokens as invalid; what may succeed later stays due. Each outcome is a row of the "
    "table `fanout`, with a hash in place of the token."
)
EXAMPLE = "tocsin pipeline fanout --config ntf-server.ini --campaign 2026-11-15 --rate 2000"

CAMPAIGN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TTL: Final = 3600
PAGE: Final = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    parser.add_argument(
        "--campaign", required=True, metavar="NAME", help="the same name goes on with the same campaign"
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=1000.0,
        metavar="N",
        help="most pushes a second to each provider (default: %(default)s)",
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    if not CAMPAIGN.fullmatch(options.campaign):
        raise ConfigError(
            f"--campaign {options.campaign[:80]}: letters, digits, `.`, `_` and `-` are expected"
        )
    if not options.rate > 0:
        raise ConfigError(f"--rate {options.rate}: it must be more than 0")
    settings, _ = served_settings(settings_of(options))
    if settings.store_kind is not StoreKind.URL:
        raise ConfigError("fanout reads tokens from PostgreSQL: the settings name none (db_connection)")
    from tocsin.pipeline.jobs.fanning_out import fan_out, plan_told

    with _opened(settings) as store:
        if job.dry_run:
            return plan_told(job, options.campaign, store.due_by_provider())
        keys = keys_folder(job.lake, None).resolve()
        parts = CampaignParts(job.lake.resolve() / "_campaigns" / options.campaign, handover_key(keys))
        if parts.planned is None:
            parts.plan(store.due_pages())
        from tocsin.cli.fanout_pusher import FanoutPusher

        expires_at = int(time.time()) + TTL
        pusher = FanoutPusher(parts.folder, keys, options.campaign, settings.apns, options.rate, expires_at)
        return fan_out(job, options.campaign, parts.names(), pusher, store.recorder(parts))


@contextmanager
def _opened(settings: NtfSettings) -> Iterator[_Tokens]:
    with asyncio.Runner() as runner:
        opening = opened_store(settings)
        store = runner.run(opening.__aenter__())
        try:
            yield _Tokens(store, runner)
        finally:
            runner.run(opening.__aexit__(None, None, None))


class _Tokens:
    """What a campaign asks of the store, for code that does not wait."""

    def __init__(self, store: NtfStore, runner: asyncio.Runner) -> None:
        self._store = store
        self._runner = runner

    def due_pages(self) -> Iterator[Sequence[TokenRecord]]:
        pages = self._store.cron_due(int(time.time()), PAGE)
        while page := self._runner.run(_next(pages)):
            yield page

    def due_by_provider(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for page in self.due_pages():
            for token in page:
                name = token.device_token.provider.text
                counts[name] = counts.get(name, 0) + 1
        return counts

    def recorder(self, parts: CampaignParts) -> Callable[[str, Sequence[Pushed]], None]:
        def record(part: str, outcomes: Sequence[Pushed]) -> None:
            self._runner.run(self._record(parts, part, {each.token: each for each in outcomes}))
            parts.done(part)

        return record

    async def _record(self, parts: CampaignParts, part: str, outcomes: dict[str, Pushed]) -> None:
        accepted = []
        for line, token in parts.tokens(part):
            became = outcomes.get(line.token)
            if became is None:
                continue
            if became.outcome == "accepted":
                accepted.append(token.token_id)
            elif became.outcome == "invalid":
                device = DeviceToken(PushProvider[token.provider.upper()], token.device_token)
                status = TokenStatus(TokenState.INVALID, InvalidReason(became.reason))
                await self._store.invalidate_token(token.token_id, device, status)
        if accepted:
            await self._store.cron_sent(accepted, int(time.time()))


async def _next(pages: AsyncIterator[Sequence[TokenRecord]]) -> Sequence[TokenRecord] | None:
    return await anext(pages, None)
