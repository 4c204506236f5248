"""`tocsin smp …`: set up and run an SMP router."""

from __future__ import annotations

from tocsin.cli.smp import cert as smp_cert
from tocsin.cli.smp import config as smp_config
from tocsin.cli.smp import init as smp_init
from tocsin.cli.smp import start as smp_start
from tocsin.cli.smp import store as smp_store

NAME = "smp"
SUMMARY = "set up and run an SMP router"
DESCRIPTION = "Sets up and runs an SMP router, which keeps message queues for SimpleX clients."
EXAMPLE = "tocsin smp init --host smp.example.com && tocsin smp start"
SUBCOMMANDS = (smp_init, smp_start, smp_cert, smp_config, smp_store)
