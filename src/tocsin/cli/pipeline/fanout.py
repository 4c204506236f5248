"""`tocsin pipeline fanout`."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tocsin.cli.ntf_files import add_config_argument, settings_of
from tocsin.cli.ntf_providers import served_settings
from tocsin.cli.ntf_store import opened_store
from tocsin.cli.pipeline.job_options import add_job_options, job_options
from tocsin.config.ntf_settings import NtfSettings, StoreKind
from tocsin.errors import ConfigError
from tocsin.observability.pseudonyms import keys_folder
from tocsin.pipeline.fanout.campaign_folder import CampaignFolder
from tocsin.pipeline.fanout.campaign_tokens import FanoutPlanner, TokenSource
from tocsin.pipeline.fanout.notice import Notice
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus
from tocsin.routers.ntf.handover_key import handover_key
from tocsin.stores.ntf_store import NtfStore

if TYPE_CHECKING:
    from tocsin.pipeline.fanout.campaign_push import PushedToken

NAME = "fanout"
SUMMARY = "remind all devices that are due to look for messages, or show a notice on all"
DESCRIPTION = (
    "Pushes a reminder to every token of a router's PostgreSQL whose periodic push is due, or an operator's notice to "
    "all active ones, from Spark's executors, at a pace. Killed, the same campaign goes on with the rest; a push that "
    "is repeated has the same id. Accepted reminders are recorded as sent and dead tokens as invalid; what may succeed "
    "later stays due. Each outcome is a row of the table `fanout`, with a hash in place of the token."
)
EXAMPLE = "tocsin pipeline fanout --config ntf-server.ini --campaign 2026-11-15 --rate 2000"

CAMPAIGN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TTL: Final = 3600
NOTICE_TTL: Final = 86_400
"""A notice is for people: it may reach a phone that was off for a while."""
REMINDER: Final = "reminder"
PROVIDERS: Final = tuple(each.text for each in PushProvider if each is not PushProvider.WEBPUSH)
"""Web Push is left to the router, which reminds its devices by itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_argument(parser)
    parser.add_argument(
        "--campaign", required=True, metavar="NAME", help="the same name goes on with the same campaign"
    )
    parser.add_argument(
        "--notice",
        metavar="TEXT",
        help="show this text on all devices instead; the push service can read it",
    )
    parser.add_argument("--title", default="", metavar="TEXT", help="above the notice")
    parser.add_argument(
        "--provider",
        action="append",
        choices=PROVIDERS,
        metavar="NAME",
        help="only tokens of this provider, e.g. apns_prod; may be repeated (default: all)",
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
    if options.title and options.notice is None:
        raise ConfigError("--title is for a notice: say what with --notice")
    notice = None if options.notice is None else Notice(options.notice, options.title)
    settings, _ = served_settings(settings_of(options))
    if settings.store_kind is not StoreKind.URL or settings.database_url is None:
        raise ConfigError("fanout reads tokens from PostgreSQL: the settings name none (db_connection)")
    from tocsin.pipeline.jobs.fanout import fan_out, plan_told

    wanted = source_of(settings, options.provider, notice, int(time.time()))
    with _opened(settings) as store:  # which makes the tables, if there are none
        if job.dry_run:
            return plan_told(job, options.campaign, asyncio.run(wanted.counts()))
        keys = keys_folder(job.lake, None).resolve()
        parts = CampaignFolder(job.lake.resolve() / "_campaigns" / options.campaign, handover_key(keys))
        kind = kind_of(notice, wanted.providers)
        planner = begun(parts, keys, wanted, kind)
        from tocsin.pipeline.fanout.campaign_pusher import FanoutPusher

        expires_at = int(time.time()) + (TTL if notice is None else NOTICE_TTL)
        pusher = FanoutPusher(
            parts.folder, keys, options.campaign, settings.apns, options.rate, expires_at, notice
        )
        record = store.recorder(parts, reminders=notice is None)
        return fan_out(job, options.campaign, planner, finished(parts, kind), pusher, record)


def source_of(
    settings: NtfSettings, providers: Sequence[str] | None, notice: Notice | None, now: int
) -> TokenSource:
    """A reminder is for tokens whose periodic push is due, a notice for all."""
    assert settings.database_url is not None
    chosen = tuple(sorted(set(providers or PROVIDERS)))
    due_at = now if notice is None else None
    return TokenSource(settings.database_url, settings.database_schema, chosen, due_at)


def kind_of(notice: Notice | None, providers: Sequence[str]) -> str:
    what = REMINDER if notice is None else f"notice {notice.digest()}"
    return f"{what} {' '.join(providers)}"


def begun(parts: CampaignFolder, keys: Path, wanted: TokenSource, kind: str) -> FanoutPlanner | None:
    """What reads the tokens; None if they are written down. Raises ConfigError if the campaign was something else."""
    if (plan := parts.planned) is not None:
        if plan.kind != kind:
            raise ConfigError(
                f"--campaign {parts.folder.name} was begun with another notice or other providers: "
                "repeat it as it was, or begin another one"
            )
        return None
    parts.begin(msgspec.msgpack.encode(wanted))
    return FanoutPlanner(parts.folder, keys)


def finished(parts: CampaignFolder, kind: str) -> Callable[[Mapping[str, int] | None], Sequence[str]]:
    def planned(counts: Mapping[str, int] | None) -> Sequence[str]:
        if counts is not None:
            parts.finish(counts, kind)
        return parts.names()

    return planned


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

    def recorder(
        self, parts: CampaignFolder, *, reminders: bool = True
    ) -> Callable[[str, Sequence[PushedToken]], None]:
        """`reminders`: an accepted push was the token's periodic one."""

        def record(part: str, outcomes: Sequence[PushedToken]) -> None:
            self._runner.run(self._record(parts, part, {each.token: each for each in outcomes}, reminders))
            parts.done(part)

        return record

    async def _record(
        self, parts: CampaignFolder, part: str, outcomes: dict[str, PushedToken], reminders: bool
    ) -> None:
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
        if accepted and reminders:
            await self._store.cron_sent(accepted, int(time.time()))
