"""The pipeline's settings file: what `init` writes can be read, and mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.pipeline.report.verdict import MEANINGS
from tocsin.pipeline.service.settings import PipelineSettings, load_settings, new_settings
from tocsin.pipeline.update.retention import RETENTION


def load(path: Path, text: str) -> tuple[PipelineSettings, dict[str, int]]:
    path.write_text(text)
    return load_settings(path, tables=RETENTION, kinds=tuple(MEANINGS))


def test_a_new_file_has_the_defaults(tmp_path: Path) -> None:
    text = new_settings(events=[Path('/a "b"')], lake="/lake", report=Path("/report"))
    settings, retention = load(tmp_path / "p.toml", text)
    assert settings == PipelineSettings(events=('/a "b"',), lake="/lake", report="/report")
    assert retention == RETENTION


def test_every_value_in_a_comment_is_a_default(tmp_path: Path) -> None:
    text = new_settings(events=[Path("/a")], lake="/lake", report=Path("/report"))
    lines = [line[2:] if line.startswith("# ") and " = " in line else line for line in text.splitlines()]
    settings, retention = load(tmp_path / "p.toml", "\n".join(lines))
    assert retention == RETENTION
    assert (settings.every, settings.reconcile) == (
        PipelineSettings(()).every,
        PipelineSettings(()).reconcile,
    )
    assert settings.allow == {"never_received": 0}
    assert (settings.prometheus_port, settings.prometheus_host) == (0, PipelineSettings(()).prometheus_host)


def test_retention_is_chosen_by_table(tmp_path: Path) -> None:
    _, retention = load(tmp_path / "p.toml", 'events = ["a"]\n[retention]\nevents = 7\n')
    assert retention == {**RETENTION, "events": 7}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('events = ["a"]\nlakes = "x"', "unknown key lakes"),
        ('events = ["a"]\n[every]\nbuilds = 3', "unknown key builds"),
        ('events = ["a"]\n[retention]\nevent = 3', "unknown key event"),
        ('events = ["a"]\n[allow]\noverdew = 3', "unknown key overdew"),
        ('events = ["a"]\n[retention]\nevents = 0', "retention: must not be"),
        ('events = ["a"]\nsmallest_group = "x"', "smallest_group"),
        ("events = []", "events: must not be"),
        ("nonsense", "p.toml"),
        ("", "events"),
    ],
)
def test_a_mistake_is_named_with_the_file(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(tmp_path / "p.toml", text)


def test_a_missing_file_names_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tocsin pipeline init"):
        load_settings(tmp_path / "p.toml", tables=RETENTION, kinds=())
