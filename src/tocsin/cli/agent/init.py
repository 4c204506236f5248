"""`tocsin agent init`: creates an agent."""

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
SUMMARY = "create an agent"
DESCRIPTION = (
    "Creates a folder that only you can read, with the settings (agent.ini) and the store (agent.db) of a new agent. "
    "With a passphrase, keys and tokens in the store are encrypted. Existing files are never overwritten."
)
EXAMPLE = "tocsin agent init --smp-server smp://<fingerprint>@smp.example.com --ntf-server ntf://<fingerprint>@ntf.example.com"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--smp-server",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a router for new queues; repeat it to choose from several at random",
    )
    parser.add_argument(
        "--ntf-server",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a router for tokens; repeat it to choose from several at random",
    )
    parser.add_argument(
        "--check-minutes",
        metavar="MINUTES",
        help="how often subscriptions are checked and repaired (default: first after 1 day, then every 3 days)",
    )
    parser.add_argument(
        "--direct",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="use direct notifications with routers that support them (default: yes; see docs/direct-notifications.md)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be created, without creating it"
    )
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
    output.say(f"{'Would create' if options.dry_run else 'Created'} in {folder}: {INI_FILE}, {STORE_FILE}")
    output.say(
        f"Keys and tokens are {'encrypted' if passphrase else 'not encrypted'}; only you can read the files."
    )
    output.say(
        "Next: run `tocsin agent connect` for an invitation, or `tocsin agent register` for notifications."
    )
    return 0


def _refuse_existing(folder: Path) -> None:
    if existing := [name for name in (INI_FILE, STORE_FILE) if (folder / name).exists()]:
        raise ConfigError(
            f"{folder} already has an agent ({', '.join(existing)}): use it, or choose another --folder"
        )


def _make_folder(folder: Path) -> None:
    """Create the folder. An existing one keeps its files, but becomes private."""
    try:
        folder.mkdir(mode=OWNER_FOLDER, parents=True, exist_ok=True)
        folder.chmod(OWNER_FOLDER)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be created: {error.strerror}; choose another --folder") from error
