"""What the settings files of both routers have in common on the command line: which one, its check, how it is shown."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from tocsin.errors import ConfigError, TocsinError
from tocsin.operate.settings.keyed_settings import HIDDEN, NONE, TOML_SUFFIX, DescribedSetting
from tocsin.operate.settings.new_files import by_table
from tocsin.operate.settings.problems import problems_of
from tocsin.operate.settings.toml_values import literal_of

INI: Final = "ini"
TOML: Final = "toml"
FORMATS: Final = (INI, TOML)
T = TypeVar("T")


def add_settings_arguments(parser: argparse.ArgumentParser, default: str, example: str) -> None:
    """`--config` and `--set`; `default` says which file is read without it."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"the router's settings, INI or TOML, or their folder (default {default})",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a setting, instead of file and environment, for example {example}; may be repeated",
    )


class Check:
    """Steps of a check, all of which are taken; what is wrong goes to standard error, a line for each."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def step(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except ConfigError as error:
            self.problems += problems_of(error)
        except TocsinError as error:
            self.problems.append(str(error))
        return None

    def tell(self) -> bool:
        """Whether something is wrong."""
        for problem in self.problems:
            print(f"tocsin: {problem}", file=sys.stderr)
        return bool(self.problems)


def show_settings(lines: Sequence[DescribedSetting], style: str, file: Path) -> None:
    """As a table with the names of the file's format, as TOML, or as JSON."""
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
    """A file that can be used, after its secrets are filled in; what is the default is commented out."""
    by_key = {each.key: each for each in lines}
    text = []
    for table, keys in by_table(by_key).items():
        text += ["", f"[{'.'.join(table)}]"] if table else []
        for key in keys:
            each, name = by_key[key], key.toml_path[-1]
            if key.secret:
                told = "set a value: it is not shown here" if each.value == HIDDEN else "not set"
                text.append(f"# {name} =  # {told}; {each.source}")
            else:
                mark = "# " if each.source == "default" else ""
                text.append(f"{mark}{name} = {_toml_value(each)}  # {each.source}")
    return "\n".join(text).lstrip("\n") + "\n"
