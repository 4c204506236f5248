from __future__ import annotations

import json
from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.pipeline.simulate.population import Population, defaults, load_population


def test_defaults_are_a_population_and_every_parameter_has_a_meaning() -> None:
    assert Population().queues_per_token == 15 + 3 * 11
    assert all(means for _, means in defaults().values())


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("tokens", 0, "tokens is 0, but must be from 1 to 1e"),
        ("tokens", 1.5, "tokens is 1.5"),
        ("tokens", True, "tokens is True"),
        ("muted", 1.1, "muted is 1.1, but must be from 0 to 1"),
        ("group_size", "many", "group_size is 'many', but must be from 2 to 10000"),
        ("smp_restarts", -1, "smp_restarts is -1"),
        ("smp_restarts", float("nan"), "smp_restarts is nan"),
    ],
)
def test_values_that_cannot_be_are_named_with_their_limits(name: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Population(**{name: value})  # type: ignore[arg-type]


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"muted is 2.*online is 3"):
        Population(muted=2, online=3)


def test_a_population_without_queues_is_refused() -> None:
    with pytest.raises(ConfigError, match="there are no queues"):
        Population(contacts_per_token=0, groups_per_token=0)


def test_files_give_parameters_and_options_are_stronger(tmp_path: Path) -> None:
    toml, other = tmp_path / "p.toml", tmp_path / "p.json"
    toml.write_text("tokens = 500\nmuted = 0.5\n")
    other.write_text(json.dumps({"tokens": 500, "muted": 0.5}))
    for path in (toml, other):
        found = load_population(path, {"tokens": 7, "group_size": None})
        assert (found.tokens, found.muted, found.group_size) == (7, 0.5, 12)
    assert load_population(None, {}) == Population()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("p.toml", "tokenz = 5", "unknown parameters: tokenz. Use some of: activity_spread"),
        ("p.toml", "tokens == 5", "is not valid TOML"),
        ("p.json", "{", "is not valid JSON"),
        ("p.json", "[1]", "has no parameters"),
        ("absent.toml", None, "cannot read the population .*: No such file"),
    ],
)
def test_files_that_are_wrong_say_how(tmp_path: Path, name: str, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_population(tmp_path / name, {})


def test_documentation_has_every_parameter_with_its_default() -> None:
    page = (Path(__file__).parents[4] / "docs" / "pipeline-simulate.md").read_text("utf-8")
    for name, (default, means) in defaults().items():
        assert f"| `{name}` | {default:,} | {means} |" in page
