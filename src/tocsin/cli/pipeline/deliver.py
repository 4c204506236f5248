"""`tocsin pipeline deliver`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.pipeline.job_options import add_job_options, job_options
from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.handover_key import handover_keys, read_handover_key
from tocsin.ntf_router.delivery.providers import served_settings

NAME = "deliver"
SUMMARY = "push the notifications that NTF routers hand over"
DESCRIPTION = (
    "The delivery engine of NTF routers with `delivery_engine: spark`: takes the notifications that any number of "
    "routers hand over, pushes them from Spark executors and returns the outcomes. Endpoints and key of the push "
    "service come from a router's settings. Continues after a kill; a repeated push has the same id."
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
        type=Path,
        action="append",
        metavar="DIR",
        help="a router's delivery_handover folder; may be repeated (default: from the settings)",
    )
    parser.add_argument(
        "--handover-keys",
        type=Path,
        metavar="DIR",
        help="folder of the key that all routers share (default: for each folder, its name with -keys)",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=0.1,
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
    folders = options.handover or [folder for folder in [settings.delivery.handover] if folder is not None]
    if not folders:
        raise ConfigError("no hand-over folder: set delivery_handover in the settings, or give --handover")
    keys = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                f"no hand-over folder at {folder}: name a router's delivery_handover with --handover"
            )
        chosen = options.handover_keys or (settings.delivery.handover_keys if not options.handover else None)
        keys[folder.resolve()] = handover_keys(folder, chosen).resolve()
        read_handover_key(keys[folder.resolve()])
    from tocsin.pipeline.delivery.handover_source import router_names
    from tocsin.pipeline.delivery.shard_operator import ShardOperator
    from tocsin.pipeline.jobs.deliver import run_deliver

    by_router = {router: keys[folder] for router, folder in router_names(keys).items()}
    operator = ShardOperator(by_router, settings.apns, settings.fcm, settings.delivery, options.patience)
    return run_deliver(job, list(keys), operator, interval=options.interval, shards=options.shards)
