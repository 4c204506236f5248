"""Worlds from sender to device, with every kind of store."""

from __future__ import annotations

from tests.doubles.ntf_world_fixtures import memory_world, open_store, world

__all__ = ["memory_world", "open_store", "world"]
