"""`tocsin completion`: prints a script that completes commands, options and their values in a shell."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from tocsin.cli.terminal.exit_codes import ExitCode

NAME = "completion"
SUMMARY = "print a completion script for bash, zsh or fish"
DESCRIPTION = (
    "Prints a script that lets the shell complete commands, options, their values and file names. bash: write it to "
    "the file in the example, or run `source <(tocsin completion bash)`. zsh: write it to a file named _tocsin in a "
    "folder of $fpath. fish: write it to ~/.config/fish/completions/tocsin.fish."
)
EXAMPLE = "tocsin completion bash > ~/.local/share/bash-completion/completions/tocsin"
SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to print a script for")


def run(options: argparse.Namespace) -> int:
    print(completion_script(options.shell, options.program))
    return ExitCode.OK


def completion_script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for a program with this parser, which is changed: build one for this call."""
    import shtab

    _prepare(parser, shtab.FILE)
    script: str = shtab.complete(parser, shell)
    return script


def _prepare(parser: argparse.ArgumentParser, files: dict[str, Any]) -> None:
    """Complete file names where a path is expected, and show a command's summary instead of its description."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                child.description = None
                _prepare(child, files)
        elif action.type is Path:
            action.complete = files  # type: ignore[attr-defined]  # an attribute that shtab reads
