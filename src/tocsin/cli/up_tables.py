"""The pipeline's accounting, read from its table without Spark."""

from __future__ import annotations

from pathlib import Path

from tocsin.cli.up_figures import Account
from tocsin.pipeline.lake.table_files import sums_of


def account_of_tables(lake: Path) -> Account:
    """Over all hours there are."""
    return Account(**sums_of(lake, "funnel_hourly", Account.__slots__))
