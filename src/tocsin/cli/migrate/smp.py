"""`tocsin migrate smp`: moves an SMP router from the reference to Tocsin, or back."""

from __future__ import annotations

import argparse

from tocsin.cli.migrate.moves import add_move_arguments, run_move
from tocsin.cli.smp.router_kind import SMP
from tocsin.migrate.smp_move import SmpMove

NAME = "smp"
SUMMARY = "move an SMP router"
DESCRIPTION = (
    "Reads smp-server.ini, the certificates and the store (logs, or tables of 6.5 or 7.0 in PostgreSQL) of the "
    "reference's smp-server, shows what will happen, copies them to new folders or into our own tables, and then "
    "counts queues and messages. Without --to nothing is written: Tocsin runs in the reference's folders, and this "
    "command checks that it can. --back does the reverse. The source is never changed."
)
EXAMPLE = "tocsin migrate smp --to /srv/smp --to-data /srv/smp-data --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    data = f"{SMP.default_store_help}; in place and with --back: the one that the settings name, if any"
    add_move_arguments(parser, SMP, data)
    parser.add_argument(
        "--database",
        metavar="URL",
        help="keep queues and messages in this PostgreSQL database; needs --to. With --back: in the reference's tables "
        "there, which must exist and be empty",
    )


def run(options: argparse.Namespace) -> int:
    return run_move(options, SmpMove)
