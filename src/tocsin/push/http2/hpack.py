"""Header compression (RFC 7541) by jh2, whose inner module is native code and costs a tenth of pure Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import jh2._hazmat  # type: ignore[import-untyped]

Header = tuple[bytes, bytes, bool]
"""Name, value, and whether it must not be put into the compression's table."""

HPACKError: type[Exception] = jh2._hazmat.HPACKError
OversizedHeaderListError: type[Exception] = jh2._hazmat.OversizedHeaderListError


def is_panic(error: BaseException) -> bool:
    """Whether the native code met what it does not expect: its exception is no `Exception`, and cannot be imported.

    Seen with a header block of the one byte 07.
    """
    return type(error).__name__ == "PanicException"


class HeaderEncoder(Protocol):
    header_table_size: int

    def encode(self, headers: Sequence[Header]) -> bytes: ...


class HeaderDecoder(Protocol):
    def decode(self, data: bytes, raw: bool) -> Sequence[Header]:
        """Raises HPACKError, or OversizedHeaderListError, which is not one; or panics (`is_panic`)."""


def new_encoder() -> HeaderEncoder:
    return cast(HeaderEncoder, cast(Any, jh2._hazmat).Encoder())


def new_decoder(max_header_list_bytes: int) -> HeaderDecoder:
    return cast(HeaderDecoder, cast(Any, jh2._hazmat).Decoder(max_header_list_bytes))
