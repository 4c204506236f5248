"""The simulated population: its parameters from a file or from options, and their limits."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from tocsin.errors import ConfigError

MOST_TOKENS: Final = 10**9


def parameter(default: float, low: float, high: float, means: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "means": means})


@dataclass(frozen=True, slots=True)
class Population:
    """Averages per device or queue, unless stated otherwise. Raises ConfigError for a value out of range."""

    seed: int = parameter(1, 0, 2**31 - 1, "the same seed gives the same population")
    tokens: int = parameter(100_000, 1, MOST_TOKENS, "devices")
    contacts_per_token: float = parameter(15, 0, 10_000, "direct conversations, with one queue each")
    groups_per_token: float = parameter(3, 0, 1_000, "groups")
    group_size: float = parameter(
        12, 2, 10_000, "members of a group; a device has one queue for each other member"
    )
    messages_per_contact: float = parameter(4, 0, 100_000, "messages per day to the queue of a conversation")
    messages_per_member: float = parameter(1, 0, 100_000, "messages per day to the queue of a group member")
    activity_spread: float = parameter(
        1, 0, 3, "sigma: how much devices differ in the number of their messages"
    )
    muted: float = parameter(0.2, 0, 1, "share of queues without notifications")
    online: float = parameter(0.1, 0, 0.5, "share of the day with the app open, when pushes are not needed")
    queue_turnover: float = parameter(0.005, 0, 1, "share of queues that are new each day")
    check_days: float = parameter(3, 0.1, 365, "days between two checks of a subscription by its device")
    push_seconds: float = parameter(
        0.1, 0, 3_600, "duration of a push; notifications that arrive meanwhile share the next one"
    )
    smp_routers: int = parameter(200, 1, 1_000_000, "SMP routers")
    smp_skew: float = parameter(1, 0, 3, "inequality of SMP routers: 0 equal, 1 like word frequencies")
    ntf_routers: int = parameter(3, 1, 10_000, "NTF routers")
    smp_restarts: float = parameter(
        0.1, 0, 1_000, "restarts of each SMP router per day, which break all its connections"
    )
    ntf_restarts: float = parameter(0.1, 0, 1_000, "restarts of each NTF router per day")

    def __post_init__(self) -> None:
        wrong = [
            f"{each.name} is {getattr(self, each.name)!r}, but must be {_range(each.metadata)}"
            for each in fields(self)
            if not _is_number(getattr(self, each.name), whole=each.type == "int")
            or not each.metadata["low"] <= getattr(self, each.name) <= each.metadata["high"]
        ]
        if wrong:
            raise ConfigError(f"impossible population: {'; '.join(wrong)}")
        if self.queues_per_token <= 0:
            raise ConfigError(
                "impossible population: without contacts and groups there are no queues. Raise contacts_per_token"
            )

    @property
    def queues_per_token(self) -> float:
        return self.contacts_per_token + self.groups_per_token * (self.group_size - 1)


def load_population(path: Path | None, chosen: Mapping[str, float | int | None]) -> Population:
    """Reads any parameters from a TOML or JSON file; chosen values override them. Raises ConfigError."""
    given = _file(path) if path else {}
    known = {each.name for each in fields(Population)}
    if unknown := sorted(given.keys() - known):
        raise ConfigError(
            f"{path} has unknown parameters: {', '.join(unknown)}. Use some of: {', '.join(sorted(known))}"
        )
    return Population(**{**given, **{name: value for name, value in chosen.items() if value is not None}})


def _file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read the population {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(
            f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}"
        ) from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} has no parameters: write them like tokens = 1000000")
    return found


def defaults() -> dict[str, tuple[float | int, str]]:
    """Default and meaning of every parameter."""
    return {
        each.name: (each.default, each.metadata["means"])
        for each in fields(Population)
        if each.default is not MISSING
    }


def _is_number(value: object, *, whole: bool) -> bool:
    return isinstance(value, int if whole else int | float) and not isinstance(value, bool)


def _range(limits: Mapping[str, Any]) -> str:
    return f"from {limits['low']:g} to {limits['high']:g}"
