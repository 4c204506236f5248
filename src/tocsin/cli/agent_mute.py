"""`tocsin agent mute`: no notifications of a connection."""

from __future__ import annotations

import argparse

from tocsin.cli import agent_muting

NAME = "mute"
SUMMARY = "switch a connection's notifications off"
DESCRIPTION = (
    "Switches a connection's notifications off: its SMP router forgets the notifier, so nobody hears of its messages. "
    "They are received as before by `listen`."
)
EXAMPLE = "tocsin agent mute Zm9vYmFyYmF6cXV4"
add_arguments = agent_muting.add_arguments


def run(options: argparse.Namespace) -> int:
    return agent_muting.set_notifications(options, False)
