"""Seeds from the recorded traffic of tests/wire_vectors.

The files are walked, not interpreted: the name above a `content` says in which direction it went.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tocsin.protocol.dialect import Dialect
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.smp.dialect import SMP

ROOT: Final = Path(__file__).resolve().parent.parent
VECTORS: Final = ROOT / "tests" / "wire_vectors"

_DIALECTS: Final = {"smp": SMP, "ntf": NTF}
_FROM_CLIENT: Final = frozenset({"request", "requests", "request_content", "inner_request"})


class RecordingsMissing(Exception):
    """The folder of recorded traffic is not there or empty."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One piece of recorded traffic."""

    place: str
    """`server_hello`, `client_hello`, `service_response`, `request`, `response`, `body`, `text`, `plain`, …"""
    dialect: Dialect | None
    version: int
    data: bytes

    @property
    def from_client(self) -> bool:
        return self.place in _FROM_CLIENT


def recorded(folder: Path = VECTORS) -> list[Recorded]:
    """Raises `RecordingsMissing` with a sentence for people."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise RecordingsMissing(
            f"the fuzzer takes its seeds from recorded traffic, and there is none in {folder}: "
            "restore tests/wire_vectors from the repository, or name a folder with --vectors"
        )
    return [piece for file in files for piece in _pieces_of(json.loads(file.read_text("utf-8")))]


def _pieces_of(file: dict[str, Any]) -> Iterator[Recorded]:
    for vector in file["vectors"]:
        dialect = _DIALECTS.get(vector["protocol"])
        place = "request" if str(vector["direction"]).startswith("client->") else "response"
        for found, data in _walk(vector, place):
            yield Recorded(found, dialect, vector["version"], data)


def _walk(node: object, place: str) -> Iterator[tuple[str, bytes]]:
    if isinstance(node, list):
        for each in node:
            yield from _walk(each, place)
    if not isinstance(node, dict):
        return
    for name, value in node.items():
        if value is None:
            continue
        match name:
            case "content":
                yield place, _bytes(value)
            case "request_content":
                yield name, _bytes(value)
            case "plain" | "meta":
                yield name, _bytes(value)
            case "body" | "text" if isinstance(value, str) and place in ("http", "decrypted"):
                yield name, value.encode()
            case _:
                yield from _walk(value, name if isinstance(value, dict | list) else place)


def _bytes(value: str | list[Any]) -> bytes:
    """Hex, or a list of parts: hex, or `[hex, n]` for a byte n times."""
    if isinstance(value, str):
        return bytes.fromhex(value)
    parts = (part if isinstance(part, str) else part[0] * part[1] for part in value)
    return bytes.fromhex("".join(parts))
