"""`tocsin`: parses the command line and runs the command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from tocsin import __version__
from tocsin.cli import (
    agent,
    completion,
    doctor,
    fake_apns,
    fake_fcm,
    migrate,
    ntf,
    ping,
    pipeline,
    self_check,
    smp,
    up,
)
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.cli.terminal.next_steps import with_next_step
from tocsin.errors import TocsinError

COMMANDS = (up, doctor, self_check, ping, smp, ntf, migrate, agent, pipeline, fake_apns, fake_fcm, completion)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tocsin",
        description="Private push notifications for SimpleX.",
        epilog="example: tocsin up --once",
    )
    parser.add_argument("--version", action="version", version=f"tocsin {__version__}")
    parser.set_defaults(program=parser)  # `tocsin completion` describes all of it
    _add_commands(parser, COMMANDS)
    return parser


def _add_commands(parser: argparse.ArgumentParser, modules: Sequence[ModuleType]) -> None:
    """A module has either `SUBCOMMANDS`, which are such modules, or `add_arguments` and `run`."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in modules:
        command = commands.add_parser(
            module.NAME,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=f"example: {module.EXAMPLE}",
        )
        if subcommands := getattr(module, "SUBCOMMANDS", ()):
            _add_commands(command, subcommands)
        else:
            module.add_arguments(command)
            command.set_defaults(run=module.run)


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. Errors that a user can fix are one line on standard error."""
    options = build_parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except TocsinError as error:
        print(f"tocsin: {with_next_step(error)}", file=sys.stderr)
        return ExitCode.WRONG
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return code


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))
