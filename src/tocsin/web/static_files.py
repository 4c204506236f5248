"""The files of the page, served as they are in the package: no build step, no other host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    content_type: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """By path; `/` is the page itself."""
    found = {}
    for file in files("tocsin.web").joinpath("static").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in _TYPES:
            found[f"/{file.name}"] = StaticFile(file.read_bytes(), _TYPES[kind])
    found["/"] = found["/index.html"]
    return found
