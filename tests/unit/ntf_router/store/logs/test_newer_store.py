"""A folder that a newer version has written is refused in one sentence, and stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ntf_router.store import samples
from tests.unit.ntf_router.store.opened_stores import abandon
from tocsin.errors import StoreError
from tocsin.ntf_router.store.logs.log_reading import STATE, STORE_LOG, change_log
from tocsin.ntf_router.store.logs.store_files import open_ntf_store

NEWER = [
    (STORE_LOG, b"TROTATE dGlk"),
    (STATE, b"STATE v2 1"),
    (STATE, b"COLOUR dGlk red"),
    (change_log(Path(), 1).name, b"Z dGlk"),
]


@pytest.mark.parametrize(("name", "line"), NEWER)
async def test_a_line_of_a_newer_version_is_refused_and_stays(tmp_path: Path, name: str, line: bytes) -> None:
    store = open_ntf_store(tmp_path)
    owner = await samples.filled(store, "a", "x")
    await store.add_notifications(samples.ROUTER, [samples.received("x", 1)])
    if name == STATE:
        await store.close()
    else:
        abandon(store)
    whole = (tmp_path / name).read_bytes() if line != b"STATE v2 1" else b""
    (tmp_path / name).write_bytes(whole + line + b"\n")
    with pytest.raises(
        StoreError, match=r"line \d+: .*; a newer version may have written it: update Tocsin$"
    ) as raised:
        open_ntf_store(tmp_path)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)
    assert (tmp_path / name).read_bytes() == whole + line + b"\n"
    if whole:
        (tmp_path / name).write_bytes(whole)
        store = open_ntf_store(tmp_path)
        assert (await store.counts()).notifications == 1
        assert await store.token(owner.token_id) is not None
        abandon(store)
