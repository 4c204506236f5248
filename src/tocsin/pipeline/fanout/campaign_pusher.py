"""Runs on executors for `fanout`: pushes to a share of a part's tokens at a given rate, and returns outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tocsin.ntf_router.delivery.channels.handover_key import read_handover_key
from tocsin.ntf_router.delivery.outcome_rows import outcome_words
from tocsin.ntf_router.delivery.pushes import campaign_request
from tocsin.pipeline.delivery.push_sender import Push, sender_of
from tocsin.pipeline.fanout.campaign_folder import CampaignFolder, CampaignToken
from tocsin.pipeline.fanout.options import FanoutOptions
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import PushOutcome, TokenInvalid
from tocsin.push.settings import ApnsSettings


class PushedToken(NamedTuple):
    """The outcome of one token's push. The token is a keyed hash."""

    token: str
    provider: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class FanoutPusher:
    """Implements `PartPusher`. It travels through Spark, so it holds the folder of the key instead of the key."""

    folder: Path
    keys: Path
    options: FanoutOptions
    """Its rate is that of all executors together."""
    apns: ApnsSettings
    expires_at: int

    def __call__(self, part: str, shard: int, shards: int) -> list[PushedToken]:
        campaign = CampaignFolder(self.folder, read_handover_key(self.keys))
        mine = [(line, token) for line, token in campaign.tokens(part) if line.shard(shards) == shard]
        rate = self.options.rate / shards
        patience = len(mine) / rate + self.apns.request_timeout
        outcomes = sender_of(self.apns).send(self._pushes([token for _, token in mine]), patience, rate)
        return [
            PushedToken(line.token, token.provider, *_words(token, outcome))
            for (line, token), outcome in zip(mine, outcomes, strict=True)
        ]

    def _pushes(self, tokens: list[CampaignToken]) -> Iterator[Push]:
        for token in tokens:
            provider = PushProvider[token.provider.upper()]
            request = campaign_request if self.options.notice is None else self.options.notice.request
            yield provider, request(token.device_token, self.options.campaign, self.expires_at)


def _words(token: CampaignToken, outcome: PushOutcome | None) -> tuple[str, str]:
    """The outcome and its reason. A refusal that predates the registration of the device token does not concern it."""
    assert outcome is not None
    if isinstance(outcome, TokenInvalid) and not outcome.concerns(token.registered_at):
        return "refused", "stale_refusal"
    return outcome_words(outcome)
