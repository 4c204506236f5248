"""`tocsin agent …`: the device's side of notifications.

One module per command, and what the commands share: `session`, `folder`, `output`, `pushes`, `next_steps`.
"""

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
    rollback,
    send,
    status,
    unmute,
    unregister,
    verify,
    wake,
)

NAME = "agent"
SUMMARY = "act as a device: connections, tokens, pushes"
DESCRIPTION = (
    "Does everything that notifications need on a device: registers a device token, keeps a subscription for every "
    "connection, wakes on a push, finds out which connections have messages and fetches them. It has no double "
    "ratchet, so do not use it for secret messages."
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
    rollback,
)
