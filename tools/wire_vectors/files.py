"""Reading vector files: JSON objects with byte strings in hex, long ones as a list of parts.

A file is `{"topic", "recorded", "servers", "vectors": [...]}`; see shared/vectors/README.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

_COMMON: Final = frozenset({"name", "protocol", "version", "direction", "description"})


class BadVector(Exception):
    """A file or a vector that is not in the format."""


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object. Reading a field that is missing or of another kind raises `BadVector`."""

    where: str
    values: dict[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def value(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise BadVector(f"{self.where} has no field {name}") from None

    def octets(self, name: str) -> bytes:
        return octets(self.value(name), f"{self.where}.{name}")

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            raise BadVector(f"{self.where}.{name} is not a text")
        return value

    def integer(self, name: str) -> int:
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadVector(f"{self.where}.{name} is not a number")
        return value

    def items(self, name: str) -> list[Any]:
        value = self.value(name)
        if not isinstance(value, list):
            raise BadVector(f"{self.where}.{name} is not a list")
        return value

    def object(self, name: str) -> Fields:
        return as_object(self.value(name), f"{self.where}.{name}")

    def objects(self, name: str) -> list[Fields]:
        return [as_object(value, f"{self.where}.{name}[{at}]") for at, value in enumerate(self.items(name))]


@dataclass(frozen=True, slots=True)
class Vector:
    """One recorded exchange."""

    name: str
    protocol: str
    version: int
    direction: str
    recorded: datetime
    """The end of the day of the recording: certificates made on that day are valid then."""
    fields: Fields

    @property
    def kind(self) -> frozenset[str]:
        """The fields that say what the vector is about."""
        return frozenset(self.fields.values) - _COMMON


def octets(value: object, where: str) -> bytes:
    """Hex, or a list of parts, each hex or `[hex, n]`: that byte n times."""
    if isinstance(value, list):
        return b"".join(_part(part, where) for part in value)
    return _hex(value, where)


def _part(part: object, where: str) -> bytes:
    match part:
        case [unit, int(count)] if count >= 0:
            return _hex(unit, where) * count
        case _:
            return _hex(part, where)


def _hex(value: object, where: str) -> bytes:
    if not isinstance(value, str):
        raise BadVector(f"{where} is not a byte string in hex")
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise BadVector(f"{where} is not a byte string in hex") from None


def as_object(value: object, where: str) -> Fields:
    if not isinstance(value, dict):
        raise BadVector(f"{where} is not an object")
    return Fields(where, value)


def read_folder(folder: Path) -> Iterator[Vector]:
    """All vectors of the `*.json` files of a folder, by file name. Raises `BadVector`."""
    if not folder.is_dir():
        raise BadVector(f"There is no folder {folder}.")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise BadVector(f"The folder {folder} has no *.json files.")
    for path in paths:
        yield from read_file(path)


def read_file(path: Path) -> list[Vector]:
    """Raises `BadVector` naming the file."""
    try:
        whole = as_object(json.loads(path.read_bytes()), "the file")
        recorded = datetime.fromisoformat(whole.text("recorded"))
        end_of_day = recorded.replace(hour=23, minute=59, second=59, tzinfo=UTC)
        return [_vector(fields, end_of_day) for fields in whole.objects("vectors")]
    except (BadVector, ValueError, OSError, RecursionError) as error:
        raise BadVector(f"{path} is not a file of vectors: {error}.") from error


def _vector(fields: Fields, recorded: datetime) -> Vector:
    return Vector(
        fields.text("name"),
        fields.text("protocol"),
        fields.integer("version"),
        fields.text("direction"),
        recorded,
        Fields(fields.text("name"), fields.values),
    )
