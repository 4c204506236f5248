"""`tocsin ntf …`: one module per command of an NTF router, and its description for `cli.routers`.

Behaviour belongs to `ntf_router`; here are only arguments and output.
"""

from __future__ import annotations

from tocsin.cli.ntf import cert, config, delete, init, repair, replay, separate_services, start, store, vapid

NAME = "ntf"
SUMMARY = "set up and run an NTF router"
DESCRIPTION = "Sets up and runs an NTF router, which wakes devices by push when their queues have messages."
EXAMPLE = "tocsin ntf init --host ntf.example.com && tocsin ntf start"
SUBCOMMANDS = (init, start, cert, config, delete, store, repair, replay, separate_services, vapid)
