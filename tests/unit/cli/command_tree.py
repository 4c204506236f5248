"""The tree of commands and options as argparse has it, for tests of completion and help."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    """With their dashes; empty for an argument without a name."""
    help: str
    choices: tuple[str, ...] = ()
    takes_value: bool = False
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    path: tuple[str, ...]
    """`("smp", "init")`; empty for the program itself."""
    summary: str
    description: str
    epilog: str
    options: tuple[Option, ...]
    arguments: tuple[Option, ...]
    children: tuple[str, ...]


def commands_of(parser: argparse.ArgumentParser) -> list[Command]:
    """Every command, parents first."""
    return list(_walk(parser, (), ""))


def _walk(parser: argparse.ArgumentParser, path: tuple[str, ...], summary: str) -> Iterator[Command]:
    # argparse offers no public access to what was added; these names are as old as the module.
    actions: list[argparse.Action] = parser._actions
    children: dict[str, argparse.ArgumentParser] = {}
    summaries: dict[str, str] = {}
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            children |= action.choices
            summaries |= {each.dest: each.help or "" for each in action._choices_actions}
    shown = [
        each
        for each in actions
        if not isinstance(each, argparse._SubParsersAction) and each.help is not argparse.SUPPRESS
    ]
    yield Command(
        path,
        summary,
        parser.description or "",
        parser.epilog or "",
        tuple(_option(parser, each) for each in shown if each.option_strings),
        tuple(_option(parser, each) for each in shown if not each.option_strings),
        tuple(children),
    )
    for name, child in children.items():
        yield from _walk(child, (*path, name), summaries.get(name, ""))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    kind: Any = action.type
    return Option(
        tuple(action.option_strings),
        parser._get_formatter()._expand_help(action) if action.help else "",
        tuple(map(str, action.choices or ())),
        action.nargs != 0,
        kind is Path,
    )
