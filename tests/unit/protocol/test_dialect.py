from __future__ import annotations

import pytest

from tocsin.protocol.dialect import Dialect
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.smp.dialect import SMP
from tocsin.wire.versions import VersionRange


@pytest.mark.parametrize(
    ("dialect", "with_alpn", "without"),
    [(SMP, VersionRange(6, 20), VersionRange(6, 6)), (NTF, VersionRange(1, 3), VersionRange(1, 1))],
)
def test_a_client_without_alpn_is_offered_the_oldest_version(
    dialect: Dialect, with_alpn: VersionRange, without: VersionRange
) -> None:
    assert dialect.offered(None) == without
    for alpn in (dialect.alpn, "h2", "http/1.1"):
        assert dialect.offered(alpn) == with_alpn
    assert dialect.offered(dialect.alpn, VersionRange(2, 7)) == VersionRange(2, 7)
    assert dialect.offered(None, VersionRange(2, 7)) == without


def test_budgets_leave_room_for_lengths_and_tag() -> None:
    assert (SMP.block_size, SMP.budget) == (16384, 16365)
    assert (NTF.block_size, NTF.budget) == (512, 493)


def test_layouts_change_with_the_version() -> None:
    assert [SMP.layout(v).session_id for v in (6, 7, 18)] == [True, False, False]
    assert [SMP.layout(v).service_signature for v in (6, 15, 16, 18)] == [False, False, True, True]
    assert [NTF.layout(v).session_id for v in (1, 2, 3)] == [True, False, False]
    assert not any(NTF.layout(v).service_signature for v in (1, 2, 3))
