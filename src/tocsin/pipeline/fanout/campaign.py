"""One campaign over all its runs: its folder, and the store that records outcomes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels.handover_key import handover_key
from tocsin.ntf_router.opened_store import opened_store
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.ntf_router.store.interface import NtfStore
from tocsin.pipeline.fanout.campaign_folder import CampaignFolder
from tocsin.pipeline.fanout.campaign_pusher import PushedToken
from tocsin.pipeline.fanout.campaign_tokens import FanoutPlanner, TokenSource
from tocsin.protocol.ntf.device_tokens import DeviceToken, PushProvider
from tocsin.protocol.ntf.statuses import InvalidReason, TokenState, TokenStatus


class Campaign:
    """The state of a campaign in its folder, which lets a later run continue."""

    def __init__(self, folder: Path, keys: Path, kind: str) -> None:
        self.folder = CampaignFolder(folder, handover_key(keys))
        self._keys = keys
        self._kind = kind

    def begin(self, source: TokenSource) -> FanoutPlanner | None:
        """Returns the reader of tokens, or None if they are on disk. Raises ConfigError if the kind differs."""
        if (plan := self.folder.planned) is not None:
            if plan.kind != self._kind:
                raise ConfigError(
                    f"--campaign {self.folder.folder.name} was started with another notice or other providers: "
                    "repeat it unchanged, or choose another name"
                )
            return None
        self.folder.begin(msgspec.msgpack.encode(source))
        return FanoutPlanner(self.folder.folder, self._keys)

    def planned(self, counts: Mapping[str, int] | None) -> Sequence[str]:
        """Records the planner's counts, if it ran. Returns the names of the parts to push."""
        if counts is not None:
            self.folder.finish(counts, self._kind)
        return self.folder.names()


@contextmanager
def campaign_store(settings: NtfSettings) -> Iterator[CampaignStore]:
    """Opens the router's store for synchronous code, and creates missing tables."""
    with asyncio.Runner() as runner:
        opening = opened_store(settings)
        store = runner.run(opening.__aenter__())
        try:
            yield CampaignStore(store, runner)
        finally:
            runner.run(opening.__aexit__(None, None, None))


class CampaignStore:
    """Records a campaign's outcomes in the router's store."""

    def __init__(self, store: NtfStore, runner: asyncio.Runner) -> None:
        self._store = store
        self._runner = runner

    def record(
        self, folder: CampaignFolder, part: str, outcomes: Sequence[PushedToken], *, reminders: bool
    ) -> None:
        """Records the outcomes, then deletes the part. With `reminders`, accepted pushes were periodic ones."""
        self._runner.run(self._record(folder, part, {each.token: each for each in outcomes}, reminders))
        folder.done(part)

    async def _record(
        self, folder: CampaignFolder, part: str, outcomes: dict[str, PushedToken], reminders: bool
    ) -> None:
        accepted = []
        for line, token in folder.tokens(part):
            pushed = outcomes.get(line.token)
            if pushed is None:
                continue
            if pushed.outcome == "accepted":
                accepted.append(token.token_id)
            elif pushed.outcome == "invalid":
                device = DeviceToken(PushProvider[token.provider.upper()], token.device_token)
                status = TokenStatus(TokenState.INVALID, InvalidReason(pushed.reason))
                await self._store.invalidate_token(token.token_id, device, status)
        if accepted and reminders:
            await self._store.cron_sent(accepted, int(time.time()))
