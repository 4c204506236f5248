"""A path that Spark would take for a pattern is refused, or written so that it means itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.pipeline.spark.input_paths import literal_path, require_plain_path


def test_characters_of_patterns_are_escaped() -> None:
    assert literal_path(r"/a{b}[c]*?\d, e") == r"/a\{b\}\[c\]\*\?\\d, e"


def test_a_path_like_a_pattern_is_refused_where_it_cannot_be_escaped() -> None:
    require_plain_path(Path("/a/b-c.d"))
    with pytest.raises(ConfigError, match="as a pattern"):
        require_plain_path(Path("/a{b}"))
