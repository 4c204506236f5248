"""`tocsin agent unmute`: switches a connection's notifications on."""

from __future__ import annotations

import argparse

from tocsin.cli.agent.mute import add_connection_arguments, set_notifications
from tocsin.cli.agent.session import run_command
from tocsin.protocol.direct.priorities import MinimumPriority

NAME = "unmute"
SUMMARY = "switch a connection's notifications on"
DESCRIPTION = (
    "Switches a connection's notifications on again, for all messages. With an active token in instant mode, the agent "
    "requests new credentials and a new subscription, unless its SMP router only has to change the priority."
)
EXAMPLE = "tocsin agent unmute Zm9vYmFyYmF6cXV4"
add_arguments = add_connection_arguments


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: set_notifications(options, MinimumPriority.ALL, output))
