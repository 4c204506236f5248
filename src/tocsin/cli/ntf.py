"""`tocsin ntf …`: set up and run an NTF router."""

from __future__ import annotations

from tocsin.cli import (
    ntf_cert,
    ntf_config,
    ntf_delete,
    ntf_init,
    ntf_repair,
    ntf_replay,
    ntf_start,
    ntf_store_command,
)

NAME = "ntf"
SUMMARY = "set up and run an NTF router"
DESCRIPTION = "Sets up and runs an NTF router, which wakes devices by push when their queues have messages."
EXAMPLE = "tocsin ntf init --fqdn ntf.example.com && tocsin ntf start"
SUBCOMMANDS = (
    ntf_init,
    ntf_start,
    ntf_cert,
    ntf_config,
    ntf_delete,
    ntf_store_command,
    ntf_repair,
    ntf_replay,
)
