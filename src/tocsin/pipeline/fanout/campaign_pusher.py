"""What the `fanout` job does on an executor: its share of a part's tokens → pushes, at a pace → outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tocsin.config.ntf_settings import ApnsSettings
from tocsin.pipeline.delivery.push_sender import Push, sender_of
from tocsin.pipeline.fanout.campaign_folder import CampaignFolder, CampaignToken
from tocsin.pipeline.fanout.notice import Notice
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.provider import PushOutcome, TokenInvalid
from tocsin.routers.ntf.handover_key import read_handover_key
from tocsin.routers.ntf.handover_lines import Returned, returned
from tocsin.routers.ntf.push_requests import campaign_request

if TYPE_CHECKING:
    from tocsin.pipeline.fanout.campaign_push import PushedToken


@dataclass(frozen=True, slots=True)
class FanoutPusher:
    """Implements `pipeline.jobs.fanout.PartPusher`."""

    folder: Path
    keys: Path
    campaign: str
    apns: ApnsSettings
    rate: float
    """Pushes a second to each provider, by all executors together."""
    expires_at: int
    notice: Notice | None = None
    """Shown to people; without one the app is reminded to look for messages."""

    def __call__(self, part: str, shard: int, shards: int) -> list[PushedToken]:
        from tocsin.pipeline.fanout.campaign_push import PushedToken

        parts = CampaignFolder(self.folder, read_handover_key(self.keys))
        mine = [(line, token) for line, token in parts.tokens(part) if line.shard(shards) == shard]
        rate = self.rate / shards
        patience = len(mine) / rate + self.apns.request_timeout
        outcomes = sender_of(self.apns).send(self._pushes([token for _, token in mine]), patience, rate)
        answers = [_answer(token, outcome) for (_, token), outcome in zip(mine, outcomes, strict=True)]
        return [
            PushedToken(line.token, token.provider, answer.outcome, answer.reason)
            for (line, token), answer in zip(mine, answers, strict=True)
        ]

    def _pushes(self, tokens: list[CampaignToken]) -> Iterator[Push]:
        for token in tokens:
            provider = PushProvider[token.provider.upper()]
            request = campaign_request if self.notice is None else self.notice.request
            yield provider, request(token.device_token, self.campaign, self.expires_at)


def _answer(token: CampaignToken, outcome: PushOutcome | None) -> Returned:
    """A refusal from before the device token was registered anew is not about it."""
    assert outcome is not None
    answer = returned("", None, outcome)
    if isinstance(outcome, TokenInvalid) and not outcome.concerns(token.registered_at):
        return Returned("", "refused", "stale_refusal")
    return answer
