"""A folder that a newer version has written is refused in one sentence, and stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.smp_router.store.logs.test_store_files import filled, opened
from tocsin.errors import StoreError
from tocsin.smp_router.store.logs.log_reading import (
    CHANGE_LOG,
    DIRECT_LOG,
    LOCK,
    MESSAGE_LOG,
    NOTIFICATION_LOG,
    SNAPSHOTS,
    STORE_LOG,
)

NEWER = [
    (STORE_LOG, b"ROTATE cmlk a2V5"),
    (STORE_LOG, b"CREATE rid=cmlk rk=a2V5 rdh=c2Vj sid=c2lk sk= colour=red"),
    (MESSAGE_LOG, b"v4 cmlk bWlk 1 flags=T Ym9keQ=="),
    (NOTIFICATION_LOG, b"v2 bmlk bWV0YQ=="),
    (CHANGE_LOG, b"Z cmlk"),
    (DIRECT_LOG, b"SEAL cmlk"),
]


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in os.listdir(folder) if name != LOCK}


@pytest.mark.parametrize(("name", "line"), NEWER)
async def test_a_line_of_a_newer_version_is_refused_and_nothing_changes(
    tmp_path: Path, name: str, line: bytes
) -> None:
    await filled(tmp_path)
    if name in SNAPSHOTS:  # with changes that build on others, they would be refused anyway
        _, files = opened(tmp_path)
        await files.close()
    with (tmp_path / name).open("ab") as log:
        log.write(line + b"\n")
    store_before = (tmp_path / STORE_LOG).read_bytes()
    with pytest.raises(
        StoreError, match=r"line \d+: .*a newer version may have written it: update Tocsin$"
    ) as raised:
        opened(tmp_path)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)
    if name == STORE_LOG:
        assert (tmp_path / STORE_LOG).read_bytes() == store_before
    assert files_of(tmp_path)[name].endswith(line + b"\n")
