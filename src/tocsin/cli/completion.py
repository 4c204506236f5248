"""`tocsin completion`: scripts with which shells complete commands, options and their values."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from tocsin.cli.terminal.exit_codes import ExitCode

NAME = "completion"
SUMMARY = "print a script for completion in bash, zsh or fish"
DESCRIPTION = (
    "Prints a script with which the shell completes commands, options, their values and file names. bash: write it to "
    "the file of the example, or `source <(tocsin completion bash)`. zsh: write it to a file _tocsin in a folder of "
    "$fpath. fish: write it to ~/.config/fish/completions/tocsin.fish."
)
EXAMPLE = "tocsin completion bash > ~/.local/share/bash-completion/completions/tocsin"
SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to print a script for")


def run(options: argparse.Namespace) -> int:
    print(completion_script(options.shell))
    return ExitCode.OK


def completion_script(shell: str) -> str:
    import shtab

    from tocsin.cli.main import build_parser  # this module is one of its commands

    parser = build_parser()
    _prepare(parser, shtab.FILE)
    script: str = shtab.complete(parser, shell)
    return script


def _prepare(parser: argparse.ArgumentParser, files: dict[str, Any]) -> None:
    """Completes file names where a path is expected, and shows a command's one-line summary, not its description."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                child.description = None
                _prepare(child, files)
        elif action.type is Path:
            action.complete = files  # type: ignore[attr-defined]  # an attribute that shtab reads
