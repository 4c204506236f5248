"""`tocsin agent …`: the device's side of notifications."""

from __future__ import annotations

from tocsin.cli import (
    agent_connect,
    agent_delete,
    agent_doctor,
    agent_init,
    agent_listen,
    agent_mute,
    agent_passphrase,
    agent_register,
    agent_send,
    agent_status,
    agent_unmute,
    agent_unregister,
    agent_verify,
    agent_wake,
)

NAME = "agent"
SUMMARY = "be a device: connections, tokens, pushes"
DESCRIPTION = (
    "Does on a device what notifications need: registers a device token, keeps a subscription for every connection, "
    "wakes on a push, finds out which connections have messages and fetches them. It has no double ratchet: not a "
    "messenger for secrets."
)
EXAMPLE = "tocsin agent init --smp-server smp://… --ntf-server ntf://… && tocsin agent connect"
SUBCOMMANDS = (
    agent_init,
    agent_register,
    agent_verify,
    agent_unregister,
    agent_connect,
    agent_send,
    agent_listen,
    agent_wake,
    agent_status,
    agent_mute,
    agent_unmute,
    agent_delete,
    agent_doctor,
    agent_passphrase,
)
