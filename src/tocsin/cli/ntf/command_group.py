"""`tocsin ntf …`: set up and run an NTF router."""

from __future__ import annotations

from tocsin.cli.ntf import cert as ntf_cert
from tocsin.cli.ntf import config as ntf_config
from tocsin.cli.ntf import delete as ntf_delete
from tocsin.cli.ntf import init as ntf_init
from tocsin.cli.ntf import repair as ntf_repair
from tocsin.cli.ntf import replay as ntf_replay
from tocsin.cli.ntf import start as ntf_start
from tocsin.cli.ntf import store as ntf_store_command

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
