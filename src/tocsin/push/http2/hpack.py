"""Header compression (RFC 7541): complete decoding, and encoding for requests that share most headers.

Theory of operation. Both ends of a connection keep a table of headers that were sent before. A header is sent as the
index of an entry, or as a literal that may become a new entry. Old entries leave when the table is full. Decoder and
encoder must therefore see every block of their connection, in order.

Strings may be Huffman-coded. The code is canonical: the lengths of its codes determine the codes. The decoder takes a
whole byte at a time: each prefix of a code has a row, which says where each byte leads. We do not Huffman-code what
we send: the headers that requests share become references after the first request, and device tokens and ids hardly
shrink.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

Header = tuple[bytes, bytes, bool]
"""Name, value, and whether it must stay out of the compression table."""

DEFAULT_TABLE_BYTES: Final = 4096
ENTRY_OVERHEAD: Final = 32
"""The bytes that an entry counts beyond its name and value (4.1)."""
_MOST_INTEGER_BYTES: Final = 5
"""The limit of bytes after the first one of an integer. Four of them already exceed every limit of ours."""


class CompressionError(ValueError):
    """A header block that breaks RFC 7541 or our limits. The connection cannot go on."""


# The fixed table (appendix A): index 1 is the first entry.
_STATIC: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    *((b":status", status) for status in (b"200", b"204", b"206", b"304", b"400", b"404", b"500")),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *(
        (name, b"")
        for name in (
            b"accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control "
            b"content-disposition content-encoding content-language content-length content-location content-range "
            b"content-type cookie date etag expect expires from host if-match if-modified-since if-none-match "
            b"if-range if-unmodified-since last-modified link location max-forwards proxy-authenticate "
            b"proxy-authorization range referer refresh retry-after server set-cookie strict-transport-security "
            b"transfer-encoding user-agent vary via www-authenticate"
        ).split()
    ),
)
STATIC_HEADERS: Final[tuple[Header, ...]] = (
    (b"", b"", False),
    *((name, value, False) for name, value in _STATIC),
)
_FIRST_DYNAMIC: Final = len(STATIC_HEADERS)
_STATIC_INDEX: Final = {header: index for index, header in enumerate(_STATIC, 1)}
_STATIC_NAME: Final = {name: index for index, (name, _) in reversed(list(enumerate(_STATIC, 1)))}


# Integers and strings (5.1, 5.2)


def encode_integer(value: int, prefix_bits: int, flags: int = 0) -> bytes:
    """Encode an integer whose first byte has `flags` above its prefix."""
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((flags | value,))
    rest = value - limit
    parts = [flags | limit]
    while rest >= 0x80:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)


def decode_integer(block: bytes, at: int, prefix_bits: int) -> tuple[int, int]:
    """Return an integer and the place after it. Raises CompressionError, and IndexError if it is cut off."""
    limit = (1 << prefix_bits) - 1
    value = block[at] & limit
    at += 1
    if value < limit:
        return value, at
    for shift in range(0, 7 * _MOST_INTEGER_BYTES, 7):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise CompressionError("an integer that is too long")


_SHORT: Final = 0x7F
_SHORT_SIZES: Final = tuple(bytes((size,)) for size in range(_SHORT))


def encode_string(data: bytes) -> bytes:
    size = len(data)
    return (_SHORT_SIZES[size] if size < _SHORT else encode_integer(size, 7)) + data


def _decode_string(block: bytes, at: int) -> tuple[bytes, int]:
    first = block[at]
    size = first & _SHORT
    if size < _SHORT:
        at += 1
    else:
        size, at = decode_integer(block, at, 7)
    end = at + size
    if end > len(block):
        raise CompressionError("a string that is cut off")
    data = block[at:end]
    return (huffman_decoded(data) if first & 0x80 else data), end


# The Huffman code (appendix B): symbols by the length of their codes, each group in ascending order. 256 is the end.
_END_OF_STRING: Final = 256
_BY_LENGTH: Final[dict[int, Iterable[int]]] = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2",
    21: b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6",
    22: b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9",
    23: b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf"
    b"\xc5\xe7\xef",
    24: b"\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed",
    25: b"\xc7\xcf\xea\xeb",
    26: b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
    27: b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
    28: b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"
    b"\x7f\xdc\xf9",
    30: (0x0A, 0x0D, 0x16, _END_OF_STRING),
}
_ROOT: Final = 1
"""Before the first bit of a code. The prefix of a code is a one and then its bits."""


def _symbols() -> dict[int, int]:
    """Return the symbol of each complete code: in a canonical code they count up, from length to length."""
    found: dict[int, int] = {}
    code, last = 0, 0
    for length, symbols in _BY_LENGTH.items():
        code <<= length - last
        last = length
        for symbol in symbols:
            found[1 << length | code] = symbol
            code += 1
    return found


_SYMBOLS: Final = _symbols()
_PADDING: Final = frozenset((1 << bits + 1) - 1 for bits in range(8))
"""Prefixes at which a string may end: up to seven ones."""


class _Row(list[tuple[bytes, "_Row"]]):
    """For each next byte: the symbols that end in it, and the row of the prefix after it. Empty until it is needed."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: int) -> None:
        super().__init__()
        self.prefix = prefix

    def fill(self) -> None:
        self.extend(_step(self.prefix, byte) for byte in range(256))


_ROWS: Final[dict[int, _Row]] = {}
"""The row of each prefix that was needed: at most 256, and the one of strings that are wrong."""
_WRONG: Final = 0


def _row(prefix: int) -> _Row:
    return _ROWS.get(prefix) or _ROWS.setdefault(prefix, _Row(prefix))


def _step(prefix: int, byte: int) -> tuple[bytes, _Row]:
    ended = bytearray()
    for shift in range(7, -1, -1):
        prefix = prefix << 1 | byte >> shift & 1
        symbol = _SYMBOLS.get(prefix)
        if symbol == _END_OF_STRING:
            prefix = _WRONG
        if prefix == _WRONG:
            break
        if symbol is not None:
            ended.append(symbol)
            prefix = _ROOT
    return bytes(ended), _row(prefix)


def huffman_decoded(data: bytes) -> bytes:
    """Raises CompressionError."""
    while True:
        row, parts = _row(_ROOT), []
        try:
            for byte in data:
                part, row = row[byte]
                parts.append(part)
        except IndexError:
            row.fill()
            continue
        if row.prefix not in _PADDING:
            raise CompressionError("a string with wrong padding, or with its end inside")
        return b"".join(parts)


# Tables and blocks


class _HeaderTable:
    """The entries of one direction of a connection, newest first (2.3.2)."""

    def __init__(self) -> None:
        self.entries: deque[Header] = deque()
        self.limit = DEFAULT_TABLE_BYTES
        self._bytes = 0

    def add(self, header: Header) -> int:
        """Add an entry, unless it is larger than the table. Returns the number of old entries that left."""
        size = entry_size(header)
        left = self._make_room(size)
        if size <= self.limit:
            self.entries.appendleft(header)
            self._bytes += size
        return left

    def resize(self, limit: int) -> int:
        """Change the limit. Returns the number of old entries that left."""
        self.limit = limit
        return self._make_room(0)

    def _make_room(self, size: int) -> int:
        left = 0
        while self.entries and self._bytes + size > self.limit:
            self._bytes -= entry_size(self.entries.pop())
            left += 1
        return left


def entry_size(header: Header) -> int:
    return len(header[0]) + len(header[1]) + ENTRY_OVERHEAD


class Decoder:
    def __init__(self, max_list_bytes: int) -> None:
        """Take the limit of a decoded block: a few bytes can stand for any number of them."""
        self._max_list_bytes = max_list_bytes
        self._table = _HeaderTable()

    def decode(self, block: bytes) -> list[Header]:
        """Decode one block. Raises CompressionError."""
        try:
            return self._decode(block)
        except IndexError:
            raise CompressionError("a header that is cut off") from None

    def _decode(self, block: bytes) -> list[Header]:
        found: list[Header] = []
        left, at, end = self._max_list_bytes, 0, len(block)
        while at < end:
            first = block[at]
            if first & 0x80:
                index, at = (first & 0x7F, at + 1) if first < 0xFF else decode_integer(block, at, 7)
                header = self._entry(index)
            elif first & 0x60 == 0x20:
                if found:
                    raise CompressionError("a change of the table's size after a header")
                at = self._resize(block, at)
                continue
            else:
                header, at = self._literal(block, at, first)
            left -= len(header[0]) + len(header[1]) + ENTRY_OVERHEAD
            if left < 0:
                raise CompressionError(f"headers of more than {self._max_list_bytes} bytes")
            found.append(header)
        return found

    def _literal(self, block: bytes, at: int, first: int) -> tuple[Header, int]:
        is_indexed = bool(first & 0x40)
        index, at = decode_integer(block, at, 6 if is_indexed else 4)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _decode_string(block, at)
        value, at = _decode_string(block, at)
        header = name, value, bool(first & 0x10) and not is_indexed
        if is_indexed:
            self._table.add(header)
        return header, at

    def _entry(self, index: int) -> Header:
        if 0 < index < _FIRST_DYNAMIC:
            return STATIC_HEADERS[index]
        if 0 <= (place := index - _FIRST_DYNAMIC) < len(self._table.entries):
            return self._table.entries[place]
        raise CompressionError(f"no header has the index {index}")

    def _resize(self, block: bytes, at: int) -> int:
        limit, at = decode_integer(block, at, 5)
        if limit > DEFAULT_TABLE_BYTES:
            raise CompressionError(f"a table of {limit} bytes, which we did not allow")
        self._table.resize(limit)
        return at


class Encoder:
    def __init__(self) -> None:
        self._table = _HeaderTable()
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        """The number of each entry of the table. The newest has the highest."""
        self._added = 0
        self._smallest: int | None = None
        """The smallest limit since the last block, if the limit has changed."""

    def resize(self, limit: int) -> None:
        """Change the size of the table. The next block tells the peer."""
        self._smallest = limit if self._smallest is None else min(limit, self._smallest)
        self._forget(self._table.resize(limit))

    def encode(self, headers: Iterable[Header]) -> bytes:
        parts = []
        if self._smallest is not None:
            if self._smallest < self._table.limit:
                parts.append(encode_integer(self._smallest, 5, 0x20))
            parts.append(encode_integer(self._table.limit, 5, 0x20))
            self._smallest = None
        parts += [self._encoded(header) for header in headers]
        return b"".join(parts)

    def _encoded(self, header: Header) -> bytes:
        name, value, is_secret = header
        if is_secret:
            return self._named(name, 4, 0x10) + encode_string(value)
        if index := self._index(name, value):
            return encode_integer(index, 7, 0x80)
        literal = self._named(name, 6, 0x40) + encode_string(value)
        self._remember(header)
        return literal

    def _index(self, name: bytes, value: bytes) -> int | None:
        if index := _STATIC_INDEX.get((name, value)):
            return index
        number = self._numbers.get((name, value))
        return None if number is None else _FIRST_DYNAMIC + self._added - number

    def _named(self, name: bytes, prefix_bits: int, flags: int) -> bytes:
        if index := _STATIC_NAME.get(name):
            return encode_integer(index, prefix_bits, flags)
        return bytes((flags,)) + encode_string(name)

    def _remember(self, header: Header) -> None:
        self._forget(self._table.add(header))
        if entry_size(header) <= self._table.limit:
            self._added += 1
            self._numbers[header[0], header[1]] = self._added

    def _forget(self, entries: int) -> None:
        """Forget the oldest entries, which have left the table. Each pair of name and value is in it once."""
        for pair in list(self._numbers)[:entries]:
            del self._numbers[pair]
