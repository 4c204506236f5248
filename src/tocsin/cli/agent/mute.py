"""`tocsin agent mute`: no notifications of a connection."""

from __future__ import annotations

import argparse

from tocsin.cli.agent import muting
from tocsin.protocol.direct.priorities import MinimumPriority

NAME = "mute"
SUMMARY = "switch a connection's notifications off"
DESCRIPTION = (
    "Switches a connection's notifications off: its SMP router forgets the notifier, or notifies nobody, so nobody "
    "hears of its messages. They are received as before by `listen`. With --mentions-only, mentions and replies still "
    "notify, if the agent and the SMP router know direct notifications; otherwise all messages do."
)
EXAMPLE = "tocsin agent mute Zm9vYmFyYmF6cXV4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mentions-only", action="store_true", help="but not for mentions and replies")
    muting.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    wanted = MinimumPriority.PRIORITY if options.mentions_only else MinimumPriority.OFF
    return muting.set_notifications(options, wanted)
