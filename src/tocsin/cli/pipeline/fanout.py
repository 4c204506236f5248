"""`tocsin pipeline fanout`."""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.pipeline.job_options import add_job_options, job_options
from tocsin.cli.routers.router_kind import add_router_arguments
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.providers import served_settings
from tocsin.pipeline.fanout.options import PROVIDERS, FanoutOptions, Notice

NAME = "fanout"
SUMMARY = "push the periodic reminders that are due, or show a notice on all devices"
DESCRIPTION = (
    "Pushes a reminder to every token in a router's PostgreSQL whose periodic push is due, or an operator's notice to "
    "all active tokens, from Spark executors, at a limited rate. After a kill, the same campaign continues with the "
    "rest; a repeated push has the same id. Accepted reminders are recorded as sent, dead tokens as invalid; pushes "
    "that may succeed later stay due. Each outcome is a row of the table `fanout`, with a hash in place of the token."
)
EXAMPLE = "tocsin pipeline fanout --config ntf-server.ini --campaign 2026-11-15 --rate 2000"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_router_arguments(parser, NTF)
    parser.add_argument(
        "--campaign",
        required=True,
        metavar="NAME",
        help="name of this run; use the same name again to continue it",
    )
    parser.add_argument(
        "--notice",
        metavar="TEXT",
        help="show this text on all devices instead; the push service can read it",
    )
    parser.add_argument("--title", default="", metavar="TEXT", help="title of the notice")
    parser.add_argument(
        "--provider",
        action="append",
        choices=PROVIDERS,
        metavar="NAME",
        help="push only to tokens of this provider, e.g. apns_prod; may be repeated (default: all)",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=1000,
        metavar="N",
        help="most pushes per second to each provider (default: %(default)s)",
    )
    add_job_options(parser, dry_run=True)


def run(options: argparse.Namespace) -> int:
    job = job_options(options)
    if options.title and options.notice is None:
        raise ConfigError("--title is only for a notice: give its text with --notice")
    notice = None if options.notice is None else Notice(options.notice, options.title)
    providers = tuple(sorted(set(options.provider or PROVIDERS)))
    chosen = FanoutOptions(options.campaign, options.rate, notice, providers)
    settings, _ = served_settings(NTF.load_settings(options))
    from tocsin.pipeline.jobs.fanout import run_fanout

    return run_fanout(job, chosen, settings)
