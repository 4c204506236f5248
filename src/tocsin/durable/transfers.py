"""Shared by transfers between two stores: progress, and the refusal to overwrite a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of records that were transferred since the last call."""
