"""The same option means the same in every command, and every command of a router finds it by its folder."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tocsin.cli.main import build_parser

DIFFERENT: Final = {
    "--from": "a folder to move from, or the first day of a report",
    "--to": "a folder to move to, or the last day of a report",
    "--out": "a file, or the folder of a report and its pictures",
    "--smallest-group": "tokens, or queues",
    "--web-push": "an endpoint to register, or a file with a push",
    "--timeout": "the agent has its own bounds",
    "--port": "one port of a listener, or several of a router's settings",
}
"""Options that are allowed to differ, and why."""


def leaves(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command that runs something, by its path."""
    children = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not children:
        yield path, parser
    for action in children:
        for name, child in action.choices.items():
            yield from leaves(child, (*path, name))


COMMANDS: Final = dict(leaves(build_parser()))
ROUTER_COMMANDS: Final = [path for path in COMMANDS if path[0] in ("smp", "ntf")]


def options_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {name: action for action in parser._actions for name in action.option_strings}


def test_an_option_takes_the_same_kind_of_value_in_every_command() -> None:
    found: dict[str, dict[tuple[object, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, parser in COMMANDS.items():
        for name, action in options_of(parser).items():
            found[name][action.metavar, action.type, action.nargs].append(" ".join(path))
    differing = {name: dict(kinds) for name, kinds in found.items() if len(kinds) > 1}
    assert {name: kinds for name, kinds in differing.items() if name not in DIFFERENT} == {}


@pytest.mark.parametrize("path", ROUTER_COMMANDS, ids=" ".join)
def test_every_command_of_a_router_finds_it_by_its_folder(path: tuple[str, ...]) -> None:
    options = options_of(COMMANDS[path])
    assert options["--folder"].type is Path
    if path[-1] != "init":
        assert options["--config"].metavar == "FILE"
        assert options["--set"].metavar == "NAME=VALUE"


def test_defaults_are_told_in_one_way() -> None:
    for path, parser in COMMANDS.items():
        for action in parser._actions:
            assert "(default " not in (action.help or ""), (*path, *action.option_strings)


def test_options_of_both_routers_have_the_same_names() -> None:
    """What one router's command can do and the other's too, both call the same."""
    for command in ("init", "start", "cert", "config"):
        smp, ntf = options_of(COMMANDS["smp", command]), options_of(COMMANDS["ntf", command])
        for name in (
            "--folder",
            "--host",
            "--port",
            "--store",
            "--algorithm",
            "--sign-algorithm",
            "--dry-run",
        ):
            assert (name in smp) == (name in ntf), (command, name)
