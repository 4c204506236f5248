"""`tocsin smp …`: one module per command of an SMP router, and its description for `cli.routers`.

Behaviour belongs to `smp_router`; here are only arguments and output.
"""

from __future__ import annotations

from tocsin.cli.smp import cert, config, init, start, store

NAME = "smp"
SUMMARY = "set up and run an SMP router"
DESCRIPTION = "Sets up and runs an SMP router, which keeps message queues for SimpleX clients."
EXAMPLE = "tocsin smp init --host smp.example.com && tocsin smp start"
SUBCOMMANDS = (init, start, cert, config, store)
