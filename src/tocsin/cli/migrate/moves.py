"""Arguments and output that moves of both routers share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tocsin.cli.routers.router_kind import (
    RouterKind,
    S,
    add_broken_lines_argument,
    broken_lines_explained,
)
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.cli.terminal.progress import progress_bar
from tocsin.migrate.moves import Move, MoveRequest


def add_move_arguments(parser: argparse.ArgumentParser, kind: RouterKind[S], data: str) -> None:
    """`data` names the default folder of the store."""
    folder = kind.settings.default_folder
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        default=folder,
        metavar="DIR",
        help=f"folder of settings and certificates to read (default: {kind.default_folder_help})",
    )
    parser.add_argument(
        "--from-data",
        dest="source_data",
        type=Path,
        metavar="DIR",
        help=f"folder of the store to read (default: {data})",
    )
    parser.add_argument(
        "--to",
        dest="target",
        type=Path,
        metavar="DIR",
        help="new folder for settings and certificates (default: keep the folders, and only check them)",
    )
    parser.add_argument(
        "--to-data", dest="target_data", type=Path, metavar="DIR", help="new folder for the store; needs --to"
    )
    parser.add_argument("--back", action="store_true", help="move from Tocsin to the reference")
    parser.add_argument("--dry-run", action="store_true", help="show what would happen; change nothing")
    parser.add_argument(
        "--ignore-running",
        action="store_true",
        help="continue although another program listens on the server's port; the server itself must be stopped",
    )
    add_broken_lines_argument(parser, copied=False)


def run_move(options: argparse.Namespace, move: type[Move[Any, Any]]) -> int:
    request = MoveRequest(
        options.source.absolute(),
        options.source_data and options.source_data.absolute(),
        options.target and options.target.absolute(),
        options.target_data and options.target_data.absolute(),
        back=options.back,
        dry_run=options.dry_run,
        ignore_running=options.ignore_running,
        skip_broken_lines=options.skip_broken_lines,
        database=options.database,
        embedded=getattr(options, "embedded", False),
    )
    with broken_lines_explained(copied=False):
        plan = move(request, progress_bar).make_plan()
    _print("Found", plan.found)
    steps = [f"{number}. {step.text}" for number, step in enumerate(plan.steps, start=1)]
    _print("Plan", steps or ["write nothing: the server can be used where it is"])
    _print("Note", plan.notes)
    if options.dry_run:
        print("Nothing was changed: --dry-run.")
        return ExitCode.OK
    print(f"Done and verified: {plan.carry_out()}")
    _print("Next", plan.next_commands)
    _print("To go back", plan.back)
    return ExitCode.OK


def _print(title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        print(f"{title}:")
        for line in lines:
            print(f"  {line}")
