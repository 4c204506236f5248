"""`tocsin migrate ntf`: moves an NTF router from the reference to Tocsin, or back."""

from __future__ import annotations

import argparse

from tocsin.cli.migrate.moves import add_move_arguments, run_move
from tocsin.cli.ntf.router_kind import NTF
from tocsin.migrate.ntf_move import NtfMove

NAME = "ntf"
SUMMARY = "move an NTF router"
DESCRIPTION = (
    "Reads ntf-server.ini, the certificates and the store (PostgreSQL or logs) of the reference's ntf-server, shows "
    "what will happen, copies what must be copied, and then counts tokens and subscriptions. The reference's tables in "
    "PostgreSQL are used as they are. Without --to no file is written: Tocsin runs in the reference's folders, and "
    "this command checks that it can. --back does the reverse. The source is never changed."
)
EXAMPLE = "tocsin migrate ntf --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    data = f"{NTF.default_store_help}; with --back: the one that the settings name, if any"
    add_move_arguments(parser, NTF, data)
    store = parser.add_mutually_exclusive_group()
    store.add_argument(
        "--database",
        metavar="URL",
        help="copy logs into this PostgreSQL database; needs --to, not allowed with --back",
    )
    store.add_argument(
        "--embedded",
        action="store_true",
        help="copy logs into a PostgreSQL that the router runs itself; needs --to",
    )


def run(options: argparse.Namespace) -> int:
    return run_move(options, NtfMove)
