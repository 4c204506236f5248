"""Where tables are: a local folder, or a place in object storage (`s3://`, `gs://`, `abfss://`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem  # type: ignore[import-untyped]  # no types

from tocsin.errors import ConfigError

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A folder of files, as driver and executors reach it. It is pickled for executors."""

    uri: str
    """An absolute path, or an address in object storage without a slash at the end."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of object storage, by the names of the library `object_store`. They may be secret. Settings that are not
    here come from environment variables such as AWS_ACCESS_KEY_ID. A folder has them for other places, which need not
    be folders."""

    @property
    def local(self) -> Path | None:
        return None if "://" in self.uri else Path(self.uri)

    def __truediv__(self, name: str) -> TablePlace:
        return TablePlace(f"{self.uri}/{name}", self.options)

    @property
    def storage_options(self) -> dict[str, str] | None:
        return None if self.local is not None else dict(self.options) or None

    def files(self) -> Any:
        """The folder as a file system of pyarrow, with relative paths."""
        if (folder := self.local) is not None:
            return SubTreeFileSystem(str(folder), LocalFileSystem())
        return PyFileSystem(DeltaStorageHandler(self.uri, self.storage_options))


def table_place(place: str | Path | TablePlace, options: Mapping[str, str] | None = None) -> TablePlace:
    """Raises ConfigError for an address that is neither a folder nor in storage that we know."""
    if isinstance(place, TablePlace):
        return place
    text = str(place)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return TablePlace(str(Path(text).absolute()), dict(options or {}))
    if scheme == "file":
        return TablePlace(str(Path(unquote(urlsplit(text).path))), dict(options or {}))
    if scheme not in SCHEMES or not rest.strip("/"):
        raise ConfigError(
            f"cannot use {text}: name a folder, or an address that begins with "
            + ", ".join(f"{each}://" for each in SCHEMES)
        )
    return TablePlace(text.rstrip("/"), dict(options or {}))
