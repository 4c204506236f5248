"""`tocsin pipeline explain`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tocsin.cli.pipeline.job_options import add_job_options, day, job_options

NAME = "explain"
SUMMARY = "explain why a notification did not arrive"
DESCRIPTION = (
    "Shows the path of a notification, or of all notifications of a queue or token, stage by stage, and says where it "
    "stopped, what that means and what to do. Name it by a pseudonym, or by its ids and the folder of the pseudonym "
    "keys. A pseudonym is valid for one day (UTC): ask once for each day. Exit code 1: a notification was lost."
)
EXAMPLE = "tocsin pipeline explain --token-id AbC… --keys ntf-events-keys --day 2026-11-15 --hours 3"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_options(parser)
    pseudonyms = parser.add_argument_group("by pseudonym")
    for name, what in (
        ("notification", "one notification"),
        ("queue", "all notifications of a queue"),
        ("token", "all notifications of a device"),
    ):
        pseudonyms.add_argument(f"--{name}", metavar="PSEUDONYM", help=f"{what}, as named in events")
    ids = parser.add_argument_group("by ids, in base64url")
    ids.add_argument("--notifier-id", metavar="ID", help="a queue; with --nonce, one of its notifications")
    ids.add_argument("--nonce", metavar="NONCE", help="nonce of the notification")
    ids.add_argument("--token-id", metavar="ID", help="a device")
    ids.add_argument(
        "--keys", type=Path, metavar="DIR", help="folder of the pseudonym keys, beside the event log: …-keys"
    )
    parser.add_argument(
        "--day", type=day, action="append", default=[], metavar="DAY", help="UTC (default: with ids: today)"
    )
    parser.add_argument(
        "--hours", type=float, metavar="N", help="only the last N hours of the day, or before now"
    )
    parser.add_argument(
        "--last",
        type=int,
        default=20,
        metavar="N",
        help="list at most N notifications (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """1 if a notification was lost."""
    chosen = job_options(options)
    from tocsin.pipeline.explain.explanation import DeliveryVerdict
    from tocsin.pipeline.explain.question import ExplainOptions
    from tocsin.pipeline.jobs.explain import run_explain

    names = ("notification", "queue", "token", "notifier_id", "nonce", "token_id", "keys", "hours")
    asked = ExplainOptions(**{name: getattr(options, name) for name in names}, days=tuple(options.day))
    answers = run_explain(chosen, asked, most=options.last)
    return 1 if any(each.explanation.verdict is DeliveryVerdict.LOST for each in answers) else 0
