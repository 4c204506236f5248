"""Every table and column has a meaning."""

from __future__ import annotations

import pytest

from tocsin.pipeline.lake.tables import SEGMENTS_TABLE, TABLES, TableSpec
from tocsin.pipeline.schemas import meanings

EVERY = (*TABLES, SEGMENTS_TABLE)


@pytest.mark.parametrize("table", EVERY, ids=lambda table: table.name)
def test_every_column_has_a_meaning(table: TableSpec) -> None:
    assert meanings.TABLES[table.name].endswith(".")
    for field in table.schema.fields:
        assert meanings.meaning(table.name, field.name).endswith(".")


def test_no_meaning_is_left_over() -> None:
    known = {field.name for table in EVERY for field in table.schema.fields}
    assert meanings.COLUMNS.keys() <= known
    assert set(meanings.TABLES) == {table.name for table in EVERY}
