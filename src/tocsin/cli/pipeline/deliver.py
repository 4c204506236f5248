"""`tocsin pipeline deliver`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.pipeline.job_options import add_job_options, job_options
from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.errors import ConfigError, TransportError
from tocsin.ntf_router.delivery.channels.addresses import TLS, scheme_of, tls_place
from tocsin.ntf_router.delivery.channels.handover_key import handover_keys, job_key
from tocsin.ntf_router.delivery.channels.places import RouterPlace
from tocsin.ntf_router.delivery.channels.pull_client import PulledRouter
from tocsin.ntf_router.delivery.providers import existing_vapid_key, served_settings
from tocsin.ntf_router.settings.files import credentials_of
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.push.settings import WebPushSettings
from tocsin.wire.base64url import encode_base64url

NAME = "deliver"
SUMMARY = "push the notifications that NTF routers hand over"
DESCRIPTION = (
    "Takes the notifications that NTF routers with `delivery_engine: spark` or `both` hand over, pushes them from "
    "Spark executors, and returns the outcomes. Endpoints and key of the push service come from a router's settings. "
    "Continues after a kill; a repeated push has the same id."
)
EXAMPLE = (
    "tocsin pipeline deliver --config /etc/opt/simplex-notifications/ntf-server.ini --handover /srv/handover"
)

PATIENCE: Final = 3.0
"""Seconds to wait for the answers of a batch: longer than providers take, but the next batch waits for it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_router_arguments(parser, NTF)
    parser.add_argument(
        "--handover",
        action="append",
        metavar="PLACE",
        help="a router's delivery_handover folder, or an address such as tls://FINGERPRINT@host:port; may be repeated "
        "(default: from the settings)",
    )
    parser.add_argument(
        "--handover-keys",
        type=Path,
        metavar="DIR",
        help="folder of the key that all routers share, on each machine (default: for each folder, its name with "
        "-keys; for addresses the key in TOCSIN_HANDOVER_KEY)",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=0.2,
        metavar="SECONDS",
        help="how often to look for new segments (default: %(default)s)",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE,
        metavar="SECONDS",
        help="retry pushes that have no answer after this time (default: %(default)s)",
    )
    parser.add_argument(
        "--shards",
        type=int,
        metavar="N",
        help="number of parts to split a batch into, by token (default: the number of Spark's cores)",
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    for name in ("interval", "patience"):
        if not getattr(options, name) > 0:
            raise ConfigError(f"--{name} {getattr(options, name)}: must be more than 0 seconds")
    if options.shards is not None and options.shards < 1:
        raise ConfigError(f"--shards {options.shards}: must be at least 1")
    settings, _ = served_settings(NTF.load_settings(options))
    places = options.handover or _own_place(settings)
    if not places:
        raise ConfigError("no hand-over folder: set delivery_handover in the settings, or give --handover")
    own_keys = settings.delivery.handover_keys if not options.handover else None
    routers = [_router(place, options.handover_keys or own_keys, job.storage) for place in places]
    from tocsin.pipeline.delivery.shard_operator import ShardOperator
    from tocsin.pipeline.jobs.deliver import run_deliver

    keys = {each.name: each.keys_folder for each in routers}
    operator = ShardOperator(
        keys,
        settings.apns,
        settings.fcm,
        settings.delivery,
        options.patience,
        _web_push(settings),
        public_only=not settings.subscriber.allow_private_hosts,
    )
    return run_deliver(job, routers, operator, interval=options.interval, shards=options.shards)


def _web_push(settings: NtfSettings) -> WebPushSettings | None:
    """Return the settings of Web Push if the job pushes to some of its services. Raises ConfigError without its key."""
    if not settings.webpush.enabled or not settings.delivery.push_services:
        return None
    existing_vapid_key(settings.webpush)
    return settings.webpush


def _own_place(settings: NtfSettings) -> list[str]:
    """Where the router of the settings hands over. A job on its machine reaches it by its own address."""
    delivery = settings.delivery
    if delivery.handover is not None:
        return [str(delivery.handover)]
    if delivery.handover_address is None:
        return []
    if scheme_of(delivery.handover_address) != TLS:
        return [delivery.handover_address]
    host, port, _ = tls_place(delivery.handover_address)
    fingerprint = encode_base64url(credentials_of(settings).fingerprint)
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - that it is what the router listens on
    return [f"{TLS}://{fingerprint}@{f'[{here}]' if ':' in here else here}:{port}"]


def _router(place: str, keys: Path | None, storage: Mapping[str, str]) -> RouterPlace:
    """Raises ConfigError if the job cannot meet the router there."""
    if scheme_of(place) is None:
        folder = Path(place)
        if not folder.is_dir():
            raise ConfigError(
                f"no hand-over folder at {folder}: name a router's delivery_handover with --handover"
            )
        keys = handover_keys(folder, keys).resolve()
        place = str(folder.resolve())
    elif keys is not None:
        keys = keys.resolve()
    job_key(keys)
    router = RouterPlace(place, None if keys is None else str(keys), storage)
    channel = router.channel()
    if isinstance(channel, PulledRouter):
        try:
            channel.check()
        except (TransportError, TimeoutError) as error:
            print(f"deliver: {channel.place} does not answer yet: {error}", file=sys.stderr)
    return router
