"""The definition of a fuzz target, and the functions that state its contract.

A target is a function of bytes. It returns if the code under test kept its contract and raises otherwise: a
refusal must be one of the errors the decoder documents, and what was accepted must survive encode and decode.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tocsin.errors import TocsinError

T = TypeVar("T")

DEFAULT_LONGEST: Final = 2048


class ContractBroken(AssertionError):
    """A finding. The text names the target and the input in hex."""


@dataclass(frozen=True, slots=True)
class Target:
    """One family of decoders under test."""

    name: str
    where: str
    """module:function. It is imported when it is used, so that a run instruments only the code that it needs."""
    longest: int = DEFAULT_LONGEST
    """Inputs are not grown beyond this many bytes."""

    @property
    def check(self) -> Callable[[bytes], None]:
        """Raises ImportError and AttributeError."""
        module, _, function = self.where.partition(":")
        found: Callable[[bytes], None] = getattr(importlib.import_module(module), function)
        return found

    def __call__(self, data: bytes) -> None:
        """Raises `ContractBroken`, whatever the check raised: also a panic of a native library."""
        try:
            self.check(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise ContractBroken(
                f"target {self.name}, input {data.hex() or 'empty'}: {type(error).__name__}: {error}"
            ) from error


def attempt(decode: Callable[[], T], *refusals: type[TocsinError]) -> T | None:
    """The decoded value, or None if it was refused as documented. Any other exception is a finding."""
    try:
        return decode()
    except refusals:
        return None


def demand(kept: bool, promise: str) -> None:
    """States one promise. Not `assert`: a fuzzer run with -O must find the same."""
    if not kept:
        raise AssertionError(f"broken promise: {promise}")


def demand_equal(actual: object, expected: object, promise: str) -> None:
    if actual != expected:
        raise AssertionError(f"broken promise: {promise}: {actual!r} is not {expected!r}")


def choose(data: bytes, options: Sequence[T]) -> tuple[T, bytes]:
    """The option that the first byte selects, and the other bytes. Empty input selects the first."""
    return options[(data[0] if data else 0) % len(options)], data[1:]


def chosen(options: Sequence[T], option: T, data: bytes) -> bytes:
    """The input that makes `choose` give this option and these bytes: for seeds."""
    return bytes((options.index(option),)) + data
