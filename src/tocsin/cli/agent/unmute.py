"""`tocsin agent unmute`: notifications of a connection again."""

from __future__ import annotations

import argparse

from tocsin.cli.agent import muting
from tocsin.protocol.direct.priorities import MinimumPriority

NAME = "unmute"
SUMMARY = "switch a connection's notifications on"
DESCRIPTION = (
    "Switches a connection's notifications on again, for all messages: with an active token in instant mode it gets "
    "new credentials and a new subscription, unless its SMP router only has to be told."
)
EXAMPLE = "tocsin agent unmute Zm9vYmFyYmF6cXV4"
add_arguments = muting.add_arguments


def run(options: argparse.Namespace) -> int:
    return muting.set_notifications(options, MinimumPriority.ALL)
