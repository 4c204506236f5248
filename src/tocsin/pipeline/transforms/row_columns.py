"""Columns of rows as arrays of NumPy, with a number in place of null, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from tocsin.events.replay import spark_xxhash64

Numbers = NDArray[np.int64]
Codes = NDArray[np.int32]
LEAST: Final = -(1 << 63)
"""Stands for null where the greatest value counts."""
GREATEST: Final = (1 << 63) - 1
"""Stands for null where the least value counts."""
TEXT: Final = pa.dictionary(pa.int32(), pa.string())


def numbers_of(column: pa.Array, null: int = LEAST) -> Numbers:
    """A column of 64-bit numbers, with another number in place of null."""
    filled = pc.fill_null(column, null) if column.null_count else column
    return _plain(filled).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def column_of(numbers: Numbers, null: int) -> pa.Array:
    """The opposite of `numbers_of`."""
    missing = numbers == null
    return pa.array(numbers, mask=missing) if missing.any() else pa.array(numbers)


def texts_of(column: pa.Array) -> tuple[Codes, list[str]]:
    """A number for each row, -1 for null, and the texts that these numbers index.

    The texts are in the order of their hashes, so that of several texts the one with the greatest hash counts, whatever
    files they come from.
    """
    coded = _plain(column)
    if not pa.types.is_dictionary(coded.type):
        coded = coded.dictionary_encode()
    known = coded.dictionary.to_pylist()
    order = sorted(range(len(known)), key=lambda at: hash_of(known[at]))
    ranks = np.full(len(known) + 1, -1, np.int32)
    ranks[order] = np.arange(len(known), dtype=np.int32)
    indices = pc.fill_null(coded.indices, len(known)) if coded.null_count else coded.indices
    return ranks[indices.to_numpy(zero_copy_only=False)], [known[at] for at in order]


def text_column(codes: Codes, texts: Sequence[str]) -> pa.Array:
    """The opposite of `texts_of`."""
    missing = codes < 0
    indices = pa.array(codes.astype(np.int32), mask=missing) if missing.any() else pa.array(codes, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


@lru_cache(maxsize=1 << 16)
def hash_of(text: str) -> int:
    """Few different texts occur, but whoever makes SMP routers chooses the names of hosts."""
    return spark_xxhash64(text)


def numbered(*keys: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers the combinations of values that occur. Returns the row of each one's first occurrence, and each row's
    number. For keys of few different values that are at least -1.
    """
    whole = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        whole *= int(key.max(initial=-1)) + 2
        whole += key
        whole += 1
    if (span := int(whole.max(initial=0)) + 1) <= 4 * len(whole) + 1024:
        first = np.full(span, -1, np.int64)
        first[whole[::-1]] = np.arange(len(whole) - 1, -1, -1)
        found = np.flatnonzero(first >= 0)
        number = np.empty(span, np.int64)
        number[found] = np.arange(len(found))
        return first[found], number[whole]
    _, firsts, index = np.unique(whole, return_index=True, return_inverse=True)
    return firsts, index


def _plain(column: pa.Array) -> pa.Array:
    """One array in place of several chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    whole = column.combine_chunks()
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
