"""`tocsin agent passphrase`: sets, changes or removes the passphrase of the store."""

from __future__ import annotations

import argparse
from pathlib import Path

from tocsin.cli.agent.folder import agent_folder, passphrase_in, passphrase_of
from tocsin.cli.agent.output import Output
from tocsin.cli.agent.session import add_common_arguments, opened_store, run_command

NAME = "passphrase"
SUMMARY = "set, change or remove the passphrase of the store"
DESCRIPTION = (
    "Encrypts keys, tokens and messages in the store with a new passphrase, or decrypts them with --remove. "
    "--passphrase-file has the present passphrase, if there is one. The change is atomic: if the command is "
    "interrupted, either the old or the new passphrase opens the store. A lost passphrase cannot be recovered."
)
EXAMPLE = "tocsin agent passphrase --passphrase-file old.txt --new-passphrase-file new.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument(
        "--new-passphrase-file",
        type=Path,
        metavar="FILE",
        help="the file with the new passphrase in its first line",
    )
    wanted.add_argument("--remove", action="store_true", help="store everything unencrypted")
    parser.add_argument("--dry-run", action="store_true", help="check both files and show what would be done")
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _change(options, output))


async def _change(options: argparse.Namespace, output: Output) -> int:
    was_encrypted = passphrase_of(options) is not None
    new = None if options.remove else passphrase_in(options.new_passphrase_file, "--new-passphrase-file")
    async with opened_store(options) as (store, _):
        if not options.dry_run:
            await store.change_passphrase(new)
    output.result(
        {
            "folder": str(agent_folder(options)),
            "was_encrypted": was_encrypted,
            "encrypted": new is not None,
            "changed": not options.dry_run,
        }
    )
    output.say(("Would be done: " if options.dry_run else "") + _sentence(was_encrypted, new is not None))
    return 0


def _sentence(before: bool, after: bool) -> str:
    match before, after:
        case False, True:
            return "Keys, tokens and messages are encrypted. Every command now needs the passphrase."
        case True, True:
            return "The passphrase is changed. The former one no longer opens the store."
        case True, False:
            return "The passphrase is removed. Nothing is encrypted; only you can read the files."
    return "There is still no passphrase."
