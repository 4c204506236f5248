"""No recorded vector is forgotten."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

from tests.wire_vectors.smp_router.recorded import REPLAYED, SMP_VECTORS

LEFT_OUT: Final[dict[str, str]] = {}
"""Vectors that no test of this folder replays, with the reason."""


def test_every_recorded_smp_vector_is_replayed_once_or_left_out_with_a_reason() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"{__package__}.{path.stem}")
    assert sorted([*REPLAYED, *LEFT_OUT]) == sorted(SMP_VECTORS)
