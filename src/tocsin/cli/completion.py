"""`tocsin completion`: scripts with which shells complete commands, options and their values."""

from __future__ import annotations

import argparse

from tocsin.cli.terminal.exit_codes import ExitCode

NAME = "completion"
SUMMARY = "print a script for completion in bash, zsh or fish"
DESCRIPTION = (
    "Prints a script with which the shell completes commands, options, their values and file names. bash: write it to "
    "the file of the example, or `source <(tocsin completion bash)`. zsh: write it to a file _tocsin in a folder of "
    "$fpath. fish: write it to ~/.config/fish/completions/tocsin.fish."
)
EXAMPLE = "tocsin completion bash > ~/.local/share/bash-completion/completions/tocsin"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="for which shell")


def run(options: argparse.Namespace) -> int:
    from tocsin.cli.command_tree import commands_of
    from tocsin.cli.completion_scripts import SCRIPTS
    from tocsin.cli.main import build_parser  # this module is one of its commands

    print(SCRIPTS[options.shell](commands_of(build_parser())), end="")
    return ExitCode.OK
