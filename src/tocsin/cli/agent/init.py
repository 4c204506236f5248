"""`tocsin agent init`: a new agent."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from tocsin.agent.store.sqlite.store import opened_agent_store
from tocsin.cli.agent.folder import (
    INI_FILE,
    OWNER_FOLDER,
    STORE_FILE,
    AgentFile,
    agent_folder,
    check_minutes,
    passphrase_of,
    server_addresses,
    write_agent_file,
)
from tocsin.cli.agent.output import Output
from tocsin.cli.agent.session import add_common_arguments, run_command
from tocsin.errors import ConfigError
from tocsin.protocol.addresses import Scheme

NAME = "init"
SUMMARY = "make a new agent"
DESCRIPTION = (
    "Makes a folder that only you can read, with the settings (agent.ini) and the store (agent.db) of a new agent. "
    "With a passphrase, keys and tokens in the store are encrypted. Nothing that exists is overwritten."
)
EXAMPLE = "tocsin agent init --smp-server smp://<fingerprint>@smp.example.com --ntf-server ntf://<fingerprint>@ntf.example.com"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--smp-server",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="where new queues are made; several are chosen from at random",
    )
    parser.add_argument(
        "--ntf-server",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="where tokens are registered; several are chosen from at random",
    )
    parser.add_argument(
        "--check-minutes",
        metavar="MINUTES",
        help="how often subscriptions are checked and repaired (default after 1 day, then every 3)",
    )
    parser.add_argument(
        "--direct",
        action="store_true",
        help="use direct notifications with routers that know them (docs/direct-notifications.md)",
    )
    parser.add_argument("--dry-run", action="store_true", help="check and tell what would be made")
    add_common_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return run_command(options, lambda output: _init(options, output))


async def _init(options: argparse.Namespace, output: Output) -> int:
    folder, passphrase = agent_folder(options), passphrase_of(options)
    file = AgentFile(
        server_addresses(options.smp_server, Scheme.SMP, "--smp-server"),
        server_addresses(options.ntf_server, Scheme.NTF, "--ntf-server"),
        None if options.check_minutes is None else check_minutes(options.check_minutes, "--check-minutes"),
        options.direct,
    )
    await asyncio.to_thread(_refuse_existing, folder)
    if not options.dry_run:
        await asyncio.to_thread(_make_folder, folder)
        async with opened_agent_store(folder / STORE_FILE, passphrase=passphrase):
            pass
        write_agent_file(folder, file)
    output.result({"folder": str(folder), "encrypted": passphrase is not None, "made": not options.dry_run})
    output.say(f"{'Would make' if options.dry_run else 'Made'} in {folder}: {INI_FILE}, {STORE_FILE}")
    output.say(
        f"Keys and tokens are {'encrypted' if passphrase else 'not encrypted'}; only you can read the files."
    )
    output.say("Next: `tocsin agent connect` makes an invitation, `tocsin agent register` a registration.")
    return 0


def _refuse_existing(folder: Path) -> None:
    if existing := [name for name in (INI_FILE, STORE_FILE) if (folder / name).exists()]:
        raise ConfigError(
            f"{folder} has an agent already ({', '.join(existing)}): use it, or choose another --folder"
        )


def _make_folder(folder: Path) -> None:
    """One that exists keeps its other files, but nobody else may look into it any more."""
    try:
        folder.mkdir(mode=OWNER_FOLDER, parents=True, exist_ok=True)
        folder.chmod(OWNER_FOLDER)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}; choose another --folder") from error
