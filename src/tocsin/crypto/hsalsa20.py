"""HSalsa20, the step that turns a raw secret into the key of a box (smp.md 1.6).

PyNaCl does not offer it, but the libsodium inside PyNaCl has it: we call that one through ctypes (0.9 µs).
Where the library cannot be reached, a pure Python version serves (about 300 µs); `PROVIDER` says which is active.
"""

from __future__ import annotations

import ctypes
import importlib.util
import struct
from collections.abc import Callable
from typing import Final

KEY_BYTES: Final = 32
INPUT_BYTES: Final = 16

HSalsa20 = Callable[[bytes, bytes], bytes]

_CONSTANTS: Final = struct.unpack("<4I", b"expand 32-byte k")
_MASK: Final = 0xFFFFFFFF
_COLUMNS: Final = ((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11))
_ROWS: Final = ((0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14))
_OUTPUT_WORDS: Final = (0, 5, 10, 15, 6, 7, 8, 9)


def pure_python_hsalsa20(key: bytes, block: bytes) -> bytes:
    """Reference implementation from the Salsa20 description, for machines without a reachable libsodium."""
    k, b, c = struct.unpack("<8I", key), struct.unpack("<4I", block), _CONSTANTS
    state = [c[0], *k[:4], c[1], *b, c[2], *k[4:], c[3]]
    for _ in range(10):
        for quarter in (*_COLUMNS, *_ROWS):
            _quarter_round(state, *quarter)
    return struct.pack("<8I", *(state[word] for word in _OUTPUT_WORDS))


def _quarter_round(state: list[int], a: int, b: int, c: int, d: int) -> None:
    for target, first, second, turn in ((b, a, d, 7), (c, b, a, 9), (d, c, b, 13), (a, d, c, 18)):
        total = (state[first] + state[second]) & _MASK
        state[target] ^= ((total << turn) & _MASK) | (total >> (32 - turn))


def _libsodium_hsalsa20() -> HSalsa20 | None:
    library = importlib.util.find_spec("nacl._sodium")
    if library is None or library.origin is None:
        return None
    try:
        # PyDLL keeps the interpreter's lock: giving it away would take longer than the function.
        core = ctypes.PyDLL(library.origin).crypto_core_hsalsa20
    except (OSError, AttributeError):
        return None
    core.argtypes = [ctypes.c_char_p] * 4
    core.restype = ctypes.c_int
    output = ctypes.c_char * KEY_BYTES

    def hsalsa20(key: bytes, block: bytes) -> bytes:
        if len(key) != KEY_BYTES or len(block) != INPUT_BYTES:
            raise ValueError("HSalsa20 takes a 32-byte key and a 16-byte block")
        derived = output()
        core(derived, block, key, None)
        return derived.raw

    known = hsalsa20(bytes(range(32)), bytes(16)) == pure_python_hsalsa20(bytes(range(32)), bytes(16))
    return hsalsa20 if known else None


_FOUND: Final = _libsodium_hsalsa20()
PROVIDER: Final = "libsodium" if _FOUND else "pure Python (slow)"
hsalsa20: Final[HSalsa20] = _FOUND or pure_python_hsalsa20
