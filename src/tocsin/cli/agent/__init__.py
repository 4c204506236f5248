"""`tocsin agent …`: the device's side of notifications."""

from __future__ import annotations

from tocsin.cli.agent import (
    connect,
    delete,
    doctor,
    init,
    listen,
    mute,
    passphrase,
    register,
    send,
    status,
    unmute,
    unregister,
    verify,
    wake,
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
    init,
    register,
    verify,
    unregister,
    connect,
    send,
    listen,
    wake,
    status,
    mute,
    unmute,
    delete,
    doctor,
    passphrase,
)
