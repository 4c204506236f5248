"""Writes new settings files with every key, a comment above each, and the defaults commented out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.operate.settings.setting_keys import SettingKey
from tocsin.operate.settings.toml_files import literal_of

_SEPARATORS: Final = {",": "commas", " ": "spaces"}

DefaultText = Callable[[SettingKey], str]


@dataclass(frozen=True, slots=True)
class NewFile:
    """The texts of a new settings file."""

    heading: Sequence[str]
    keys: Iterable[SettingKey]
    chosen: Mapping[str, str]
    default_text: DefaultText

    def ini_text(self) -> str:
        lines = [f"# {line}" for line in self.heading]
        section = None
        for key in self.keys:
            if not key.about:
                continue
            if key.section != section:
                section = key.section
                lines += ["", f"[{section}]"]
            separator = key.kind.separator
            separated = f" Several: separated by {_SEPARATORS[separator]}." if separator else ""
            lines.append(f"# {key.about}{separated}")
            if key.name in self.chosen:
                lines.append(f"{key.name}: {self.chosen[key.name]}")
            else:
                lines.append(f"# {key.name}: {self.default_text(key)}".rstrip())
        return "\n".join(lines) + "\n"

    def toml_text(self) -> str:
        lines = [f"# {line}" for line in self.heading]
        for table, members in by_table(key for key in self.keys if key.about).items():
            lines += ["", f"[{'.'.join(table)}]"] if table else [""]
            for key in members:
                name = key.toml_path[-1]
                lines.append(f"# {_toml_about(key)}")
                if key.name in self.chosen:
                    lines.append(f"{name} = {literal_of(key.kind, self.chosen[key.name])}")
                else:
                    lines.append(f"# {name} = {literal_of(key.kind, self.default_text(key))}")
        return "\n".join(lines) + "\n"


def _toml_about(key: SettingKey) -> str:
    """Uses TOML's word for `off`, and names the variable if it does not follow from the key's name."""
    about = re.sub(r"\b[Oo]ff\b", "false", key.about)
    usual = key.environment_prefix + key.toml_path[-1].upper()
    return about if key.variable == usual else f"{about} ({key.variable})"


def by_table(keys: Iterable[SettingKey]) -> dict[tuple[str, ...], list[SettingKey]]:
    """Keys outside any table come first: TOML has no way back to them after a table's heading."""
    tables: dict[tuple[str, ...], list[SettingKey]] = {(): []}
    for key in keys:
        tables.setdefault(key.toml_path[:-1], []).append(key)
    return tables
