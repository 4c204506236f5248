"""`tocsin pipeline deliver`: options that are checked before Spark starts."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tests.doubles.delivery_engines import Meeting
from tocsin.cli.pipeline import deliver as deliver_command
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.handover import opened_handover
from tocsin.ntf_router.delivery.handover_key import KEY_FILE
from tocsin.ntf_router.settings.settings import DeliveryEngine, DeliverySettings


@pytest.fixture
def ini(tmp_path: Path) -> Path:
    path = tmp_path / "ntf-server.ini"
    path.write_text("[TOCSIN]\napns_prod_host: off\napns_dev_host: off\ndelivery_handover: handover\n")
    return path


def run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    deliver_command.add_arguments(parser)
    return deliver_command.run(parser.parse_args([str(each) for each in arguments]))


def test_a_dry_run_shows_what_waits_and_pushes_nothing(
    ini: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meeting = Meeting(tmp_path / "handover")
    meeting.opened()
    assert meeting.key
    (meeting.folder / "pending-1-1-1.jsonl").write_text(
        '["life",1,"message","apns_prod","01"]\n["life",2,"periodic","apns_prod","01"]\n'
    )
    assert run("--config", ini, "--dry-run", "--json", "--lake", tmp_path / "lake") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["handed_over"], told["folders"]) == (2, 1)
    assert not (tmp_path / "lake").exists()
    assert len(meeting.rows()) == 3  # one asks whether the job works


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--interval", "0"], "--interval 0.0"),
        (["--patience", "-1"], "--patience -1.0"),
        (["--shards", "0"], "--shards 0"),
        ([], "no hand-over folder at"),
        (["--handover", "elsewhere"], "no hand-over folder at elsewhere"),
    ],
)
def test_what_cannot_work_is_refused_by_name(ini: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run("--config", ini, *arguments)
    assert says in str(caught.value)


def test_a_router_without_a_folder_is_told_which_setting(tmp_path: Path) -> None:
    path = tmp_path / "ntf-server.ini"
    path.write_text("[TOCSIN]\napns_prod_host: off\napns_dev_host: off\n")
    with pytest.raises(ConfigError, match="set delivery_handover in the settings, or give --handover"):
        run("--config", path)


def test_a_missing_key_is_named(ini: Path, tmp_path: Path) -> None:
    (tmp_path / "handover").mkdir()
    with pytest.raises(ConfigError, match=KEY_FILE):
        run("--config", ini)


def test_the_router_opens_its_folder_only_if_it_hands_over(tmp_path: Path) -> None:
    folder = tmp_path / "handover"
    assert opened_handover(DeliverySettings(handover=folder)) is None
    assert opened_handover(DeliverySettings(engine=DeliveryEngine.SPARK, handover=folder)) is not None
    assert (tmp_path / "handover-keys" / KEY_FILE).exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot use the folder delivery_handover = "):
        opened_handover(DeliverySettings(engine=DeliveryEngine.SPARK, handover=tmp_path / "file" / "x"))
