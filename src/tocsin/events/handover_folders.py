"""Names in the folder where an NTF router and the `deliver` job meet, which both must know."""

from __future__ import annotations

from typing import Final

HANDED_OVER: Final = "pending"
"""Begins the names of segments with due pushes."""
SEGMENTS: Final = f"{HANDED_OVER}-*.jsonl"
OUTCOMES: Final = "outcomes"
"""Begins the names of segments with outcomes; also their folder's, inside the one with due pushes."""
