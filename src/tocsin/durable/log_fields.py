"""Fields of the log lines: base64url with padding, decimal numbers, words separated by one space (smp.md 1.2)."""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar

from tocsin.errors import StoreError
from tocsin.wire.base64url import base64url_bytes

# The standard alphabet's two special characters are mapped to one that no decoder accepts.
_TO_STANDARD: Final = bytes.maketrans(b"-_+/", b"+/\0\0")
_MAX_DIGITS: Final = 18

T = TypeVar("T")

encode_field: Final = base64url_bytes
"""Write a field as base64url with padding."""


class BadLogLine(StoreError):
    """A line cannot be decoded. The text never repeats the line, because it holds keys.

    The reader of a whole file fills in `file` and `line`.
    """

    def __init__(self, reason: str, *, file: str = "", line: int | None = None) -> None:
        where = f"{file}, line {line}: " if line is not None else ""
        super().__init__(where + reason)
        self.reason = reason
        self.file = file
        self.line = line


def not_known(what: str) -> BadLogLine:
    """Return the error for something that this version does not know."""
    return BadLogLine(f"{what}; a newer version may have written it: update Tocsin")


def decode_field(text: bytes) -> bytes:
    """Decode base64url, padded or not. Refuses empty text."""
    if not text:
        raise BadLogLine("an empty field")
    if len(text) & 3:
        text += b"=" * (-len(text) & 3)
    try:
        return a2b_base64(text.translate(_TO_STANDARD), strict_mode=True)
    except Base64Error:
        raise BadLogLine("not base64url") from None


def decode_field_or_empty(text: bytes) -> bytes:
    return decode_field(text) if text else b""


def encode_fields(fields: tuple[bytes, ...]) -> bytes:
    return b",".join([encode_field(field) for field in fields])


def decode_fields(text: bytes) -> tuple[bytes, ...]:
    if b"," not in text:
        return (decode_field(text),)
    return tuple([decode_field(field) for field in text.split(b",")])


def encode_number(number: int) -> bytes:
    return b"%d" % number


def decode_number(text: bytes) -> int:
    if not text.removeprefix(b"-").isdigit() or len(text) > _MAX_DIGITS:
        raise BadLogLine("not a number")
    return int(text)


def labelled(word: bytes, label: bytes) -> bytes:
    """Return the text after `label`, which ends in `=`."""
    if not word.startswith(label):
        raise BadLogLine(f"{label.decode()} is missing")
    return word[len(label) :]


def exactly(words: list[bytes], count: int) -> list[bytes]:
    if len(words) != count:
        raise BadLogLine(f"{len(words)} fields instead of {count}")
    return words


def with_rest(words: list[bytes], count: int) -> list[bytes]:
    """Return this many words. The last one reaches to the end of the line, spaces included."""
    if len(words) > count:
        words = [*words[: count - 1], b" ".join(words[count - 1 :])]
    return exactly(words, count)


@dataclass(frozen=True, slots=True)
class WordForm(Generic[T]):
    """A value as one word of a line."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    """Raises BadLogLine."""


FIELD: Final = WordForm(encode_field, decode_field)
FIELDS: Final = WordForm(encode_fields, decode_fields)
NUMBER: Final = WordForm(encode_number, decode_number)


class LineOfWords:
    """A line with a tag and a word for each field. Subclasses are dataclasses, with a form for each field."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]
    tag: ClassVar[bytes]
    forms: ClassVar[tuple[WordForm[Any], ...]]

    def encode(self) -> bytes:
        words = [self.tag]
        for form, name in zip(self.forms, self.__match_args__):  # noqa: B905 - `strict` takes longer
            words.append(form.encode(getattr(self, name)))
        return b" ".join(words)

    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        make: Callable[..., Self] = cls
        forms = cls.forms
        if len(words) != len(forms):
            exactly(words, len(forms))
        return make(*[form.decode(word) for form, word in zip(forms, words)])  # noqa: B905 - as above


class DecodesWords(Protocol):
    @classmethod
    def decode(cls, words: list[bytes]) -> Self:
        """Read the words after the tag. Raises BadLogLine."""


L = TypeVar("L", bound=DecodesWords)


def decode_line(line: bytes, kinds: Mapping[bytes, type[L]]) -> L:
    """Decode a line whose tag says its kind. Raises BadLogLine."""
    words = line.split(b" ")
    kind = kinds.get(words.pop(0))
    if kind is None:
        raise not_known("unknown kind of record")
    return kind.decode(words)


class OptionalFields:
    """The optional fields of a line, in their order."""

    __slots__ = ("_at", "_words")

    def __init__(self, words: list[bytes]) -> None:
        self._words = words
        self._at = 0

    def skip(self, label: bytes) -> bool:
        """Consume the label of the next word. Returns whether the word has it."""
        if self._at < len(self._words) and self._words[self._at].startswith(label):
            self._words[self._at] = self._words[self._at][len(label) :]
            return True
        return False

    def take(self) -> bytes:
        if self._at == len(self._words):
            raise BadLogLine("a field is missing")
        self._at += 1
        return self._words[self._at - 1]

    def end(self) -> None:
        if self._at != len(self._words):
            raise not_known("unknown fields, or fields out of order")
