"""`tocsin smp|ntf config`: checks the settings of a router, or shows them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from tocsin.cli.routers.router_kind import RouterKind, S, add_router_arguments
from tocsin.cli.terminal.exit_codes import ExitCode
from tocsin.errors import ConfigError, TocsinError
from tocsin.operate.settings.keyed_settings import HIDDEN, NONE, TOML_SUFFIX, DescribedSetting
from tocsin.operate.settings.new_files import by_table
from tocsin.operate.settings.problems import problems_of
from tocsin.operate.settings.toml_files import literal_of

SUMMARY: Final = "check or show the router's settings"
T = TypeVar("T")


class ConfigCheck:
    """Runs every step of a check and collects the problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def step(self, check: Callable[[], T]) -> T | None:
        """The result of the step, or None if it found a problem."""
        try:
            return check()
        except ConfigError as error:
            self.problems += problems_of(error)
        except TocsinError as error:
            self.problems.append(str(error))
        return None


MoreChecks = Callable[[S, ConfigCheck], list[str]]
"""Checks of one kind of router; they return lines to print if nothing is wrong."""


def add_arguments(parser: argparse.ArgumentParser, kind: RouterKind[S]) -> None:
    parser.add_argument("action", choices=("check", "show"), help="check the settings, or show them")
    add_router_arguments(parser, kind)
    parser.add_argument(
        "--format",
        choices=("table", "toml", "json"),
        default="table",
        help="output format of `show` (default: table)",
    )


def run(options: argparse.Namespace, kind: RouterKind[S], more: MoreChecks[S] | None = None) -> int:
    if options.action == "show":
        described = kind.settings.describe(kind.load_settings(options))
        show_settings(described, options.format, kind.settings_file(options))
        return ExitCode.OK
    check, lines, address = ConfigCheck(), list[str](), None
    settings = check.step(lambda: kind.load_settings(options))
    if settings is not None:
        credentials = check.step(lambda: kind.credentials(settings))
        fingerprint = credentials.fingerprint if credentials else bytes(32)
        lines = more(settings, check) if more is not None else []
        address = check.step(lambda: kind.address(settings, fingerprint))
    for problem in check.problems:
        print(f"tocsin: {problem}", file=sys.stderr)
    if check.problems:
        return ExitCode.WRONG
    for line in ("Settings and certificates are valid.", *lines, f"Address: {address}"):
        print(line)
    return ExitCode.OK


def show_settings(lines: Sequence[DescribedSetting], style: str, file: Path) -> None:
    """Print a table with the key names of the file's format, TOML, or JSON."""
    match style:
        case "json":
            print(json.dumps([_fields(each) for each in lines], indent=2))
        case "toml":
            print(_as_toml(lines), end="")
        case _:
            _print_table(lines, toml=file.suffix == TOML_SUFFIX)


def _print_table(lines: Sequence[DescribedSetting], *, toml: bool) -> None:
    rows = [
        (each.key.toml_name, _toml_value(each), each.source) if toml else (each.name, each.value, each.source)
        for each in lines
    ]
    names, values = (max(map(len, column)) for column in list(zip(*rows, strict=True))[:2])
    for name, value, source in rows:
        print(f"{name:{names}}  {value:{values}}  {source}")


def _fields(each: DescribedSetting) -> dict[str, object]:
    return {
        "name": each.key.toml_name,
        "section": each.key.section,
        "key": each.key.name,
        "variable": each.key.variable,
        "value": None if each.key.secret else each.value,
        "secret": each.key.secret,
        "set": each.value != NONE if each.key.secret else each.source != "default",
        "source": each.source,
    }


def _toml_value(each: DescribedSetting) -> str:
    return each.value if each.key.secret else literal_of(each.key.kind, each.value)


def _as_toml(lines: Sequence[DescribedSetting]) -> str:
    """A usable file once its secrets are filled in. Defaults are commented out."""
    by_key = {each.key: each for each in lines}
    text = []
    for table, keys in by_table(by_key).items():
        text += ["", f"[{'.'.join(table)}]"] if table else []
        for key in keys:
            each, name = by_key[key], key.toml_path[-1]
            if key.secret:
                hint = "set a value: it is not shown here" if each.value == HIDDEN else "not set"
                text.append(f"# {name} =  # {hint}; {each.source}")
            else:
                mark = "# " if each.source == "default" else ""
                text.append(f"{mark}{name} = {_toml_value(each)}  # {each.source}")
    return "\n".join(text).lstrip("\n") + "\n"
