"""Values of options that several commands take."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from tocsin.cli.terminal.option_types import count, lake_folder, port, seconds
from tocsin.errors import ConfigError


def test_seconds_are_above_0_and_at_most_a_day() -> None:
    assert [seconds("0.5"), seconds("86400")] == [0.5, 86_400.0]
    for text in ("0", "-1", "86401", "nan", "soon", ""):
        with pytest.raises(ArgumentTypeError, match="expected a number of seconds above 0"):
            seconds(text)


def test_counts_are_whole_and_not_negative() -> None:
    assert [count("0"), count("50")] == [0, 50]
    for text in ("-1", "1.5", "many", ""):
        with pytest.raises(ArgumentTypeError, match="expected a whole number, 0 or more"):
            count(text)


def test_ports_are_at_most_65535() -> None:
    assert [port("0"), port("65535")] == [0, 65_535]
    for text in ("65536", "-1"):
        with pytest.raises(ArgumentTypeError, match="expected a "):
            port(text)


def test_a_lake_at_an_address_is_refused_where_only_folders_can_be_read() -> None:
    assert lake_folder(None) is None
    assert lake_folder("tables") == Path("tables")
    with pytest.raises(ConfigError, match=r"run `tocsin pipeline report --lake s3://bucket/lake`"):
        lake_folder("s3://bucket/lake")
