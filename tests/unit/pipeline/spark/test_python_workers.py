"""Spark's Python processes leave out of garbage collection what they have imported."""

from __future__ import annotations

import gc

import pytest

from tocsin.pipeline.spark import python_workers
from tocsin.pipeline.spark.python_workers import freeze_imports


def test_a_process_freezes_its_imports_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_workers, "_frozen", False)
    before = gc.get_freeze_count()
    try:
        freeze_imports()
        frozen = gc.get_freeze_count()
        assert frozen > before
        later = [[each] for each in range(1000)]
        freeze_imports()
        # Frozen objects may have been dropped meanwhile, so the count may fall. A second freeze would raise it.
        assert gc.get_freeze_count() <= frozen
        assert len(later) == 1000
    finally:
        gc.unfreeze()
