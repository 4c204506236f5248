"""`tocsin smp …`: set up and run an SMP router."""

from __future__ import annotations

from tocsin.cli import smp_cert, smp_config, smp_init, smp_start, smp_store

NAME = "smp"
SUMMARY = "set up and run an SMP router"
DESCRIPTION = "Sets up and runs an SMP router, which keeps message queues for SimpleX clients."
EXAMPLE = "tocsin smp init --host smp.example.com && tocsin smp start"
SUBCOMMANDS = (smp_init, smp_start, smp_cert, smp_config, smp_store)
