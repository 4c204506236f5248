"""Which engine pushes each token's notifications: this router, or the `deliver` job.

A share of the tokens goes to the job, chosen by a hash of the token's id, so that a token keeps its engine while the
share stays the same. Raising the share moves tokens to the job only, and lowering it moves them back only. The operator
can choose the engine of single tokens while the router runs. While the job is away, this router pushes for all.

Devices name the services of Web Push, and a batch of the job waits for its slowest answer. So the job pushes only to
services that the operator named, and to none of them for a while after it did not answer in time: then this router
pushes, which lets nobody else wait.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tocsin.errors import ConfigError, DecodeError, StoreError, StoreFull
from tocsin.events.private_files import private_draft
from tocsin.ntf_router.delivery.handover import HandOver
from tocsin.ntf_router.settings.settings import DeliveryEngine, DeliverySettings
from tocsin.ntf_router.store.records import TokenRecord
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.protocol.ntf.web_push_tokens import push_service

MOST_CHOSEN: Final = 10_000
"""Tokens whose engine the operator chose. More of them need another share."""
SLOW_SECONDS: Final = 300.0
"""How long this router pushes to a Web Push service that did not answer the job in time."""
_NAME_BYTES: Final = 16
_SHARES: Final = 2**32

logger = logging.getLogger(__name__)


class TokenEngines:
    """The engine of each token. `job` is the job to hand over to; without it this router pushes everything."""

    def __init__(
        self,
        settings: DeliverySettings,
        job: HandOver | None,
        file: Path | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Choices of the operator are kept in `file`, if one is named. An unreadable file is reported and ignored."""
        self._job = job
        self._now = now
        self._slow_until = dict.fromkeys(settings.push_services, 0.0)
        """The Web Push services of the job, and until when this router pushes to them."""
        self._held: dict[bytes, Callable[[bytes], None]] = {}
        """Tokens to push to from here when the job's last outcomes are in the store, and who pushes then.

        All lanes share them: the job may have rows of a device token of another provider.
        """
        share = settings.share if settings.engine is DeliveryEngine.BOTH else 1.0
        self._limit = round(share * _SHARES)
        self._file = file
        self._chosen = {} if job is None or file is None else _read(file)

    @property
    def job(self) -> HandOver | None:
        """The job, unless it is away."""
        return None if self._job is None or self._job.away else self._job

    @property
    def handover(self) -> HandOver | None:
        """The job, whether it works or not. It may still hold notifications of any token."""
        return self._job

    def when_changed(self, call: Callable[[], None]) -> None:
        """Call `call` whenever the job has room again, is away, or is back."""
        if self._job is not None:
            self._job.when_room(call)

    def job_of(self, token_id: bytes) -> HandOver | None:
        """Return the job if it is to push for this token now, or None if this router is."""
        job = self.job
        return job if job is not None and self.engine_of(token_id) is DeliveryEngine.SPARK else None

    def job_for(self, token: TokenRecord) -> HandOver | None:
        """Return the same for a token that is known. For Web Push, its service decides too."""
        job = self.job_of(token.token_id)
        if job is None or token.device_token.provider is not PushProvider.WEBPUSH:
            return job
        until = self._slow_until.get(_service_of(token))
        return job if until is not None and self._now() >= until else None

    def hold(self, token_id: bytes, push: Callable[[bytes], None]) -> None:
        """Call `push` when the job no longer has anything of the token (`let_go`)."""
        self._held[token_id] = push

    def let_go(self, token_id: bytes) -> None:
        """Push to a token that was held."""
        push = self._held.pop(token_id, None)
        if push is not None:
            push(token_id)

    def forget_held(self, token_id: bytes) -> None:
        """Somebody else pushes to it."""
        self._held.pop(token_id, None)

    def did_not_push(self, token: TokenRecord) -> None:
        """The job cannot push to the token in time. If it has a Web Push service, this router pushes for a while."""
        if (
            token.device_token.provider is PushProvider.WEBPUSH
            and (service := _service_of(token)) in self._slow_until
        ):
            self._slow_until[service] = self._now() + SLOW_SECONDS

    def engine_of(self, token_id: bytes) -> DeliveryEngine:
        """Return the engine that is to push for a token while the job works."""
        if self._job is None:
            return DeliveryEngine.INLINE
        if self._limit == _SHARES and not self._chosen:
            return DeliveryEngine.SPARK
        digest = hashlib.sha256(token_id).digest()
        chosen = self._chosen.get(digest[:_NAME_BYTES].hex())
        if chosen is not None:
            return chosen
        is_shared = int.from_bytes(digest[:4], "big") < self._limit
        return DeliveryEngine.SPARK if is_shared else DeliveryEngine.INLINE

    def choose(self, token_id: bytes, engine: DeliveryEngine | None) -> DeliveryEngine:
        """Choose a token's engine, or leave it to the share (None), and return the engine that it has now.

        What is in flight stays where it is. Raises StoreError, and changes nothing, if that is not possible.
        """
        if self._job is None:
            raise StoreError("delivery_engine is inline: set it to both or spark, and start the router again")
        name = hashlib.sha256(token_id).digest()[:_NAME_BYTES].hex()
        changed = dict(self._chosen)
        if engine is None:
            changed.pop(name, None)
        else:
            changed[name] = engine
        if len(changed) > MOST_CHOSEN:
            raise StoreFull(f"{MOST_CHOSEN} tokens have a chosen engine: change delivery_share instead")
        if self._file is not None:
            try:
                with private_draft(self._file) as draft:
                    draft.write_bytes(msgspec.json.encode(changed))
            except ConfigError as error:
                raise StoreError(str(error)) from error
        self._chosen = changed
        return self.engine_of(token_id)


def _service_of(token: TokenRecord) -> str:
    try:
        return push_service(token.device_token.token)
    except DecodeError:
        return ""  # this router finds out what is wrong with it


def _read(file: Path) -> dict[str, DeliveryEngine]:
    try:
        chosen = msgspec.json.decode(file.read_bytes(), type=dict[str, DeliveryEngine])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        logger.error(
            "%s cannot be read (%s): tokens have the engine that delivery_share gives them", file, error
        )
        return {}
    return {name: engine for name, engine in chosen.items() if engine is not DeliveryEngine.BOTH}
