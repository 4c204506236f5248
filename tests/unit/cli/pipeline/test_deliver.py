"""`tocsin pipeline deliver`: options that are checked before Spark starts."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tests.doubles.delivery_engines import Meeting
from tests.doubles.routers import make_credentials
from tocsin.cli.pipeline import deliver as deliver_command
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.channels.handover_key import KEY_FILE, KEY_VARIABLE
from tocsin.ntf_router.delivery.handover import opened_handover
from tocsin.ntf_router.delivery.providers import required_vapid_key
from tocsin.ntf_router.settings.settings import DeliveryEngine, DeliverySettings
from tocsin.pipeline.delivery.shard_operator import ShardOperator
from tocsin.push.settings import WebPushSettings
from tocsin.transport.credential_files import write_credentials
from tocsin.wire.base64url import encode_base64url

CREDENTIALS = make_credentials()


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
    assert (told["handed_over"], told["routers"]) == (2, 1)
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


def test_executors_get_web_push_only_with_named_services_and_the_routers_key(
    ini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ShardOperator] = []
    monkeypatch.setattr("tocsin.pipeline.jobs.deliver.run_deliver", lambda *args, **_: made.append(args[2]))
    Meeting(tmp_path / "handover").opened()
    with ini.open("a") as file:
        file.write("webpush: on\nwebpush_subject: https://op.test\n")
    run("--config", ini)
    monkeypatch.setenv("TOCSIN_NTF_DELIVERY_PUSH_SERVICES", "push.test other.test:8443")
    with pytest.raises(ConfigError, match=r"no webpush_key_file .*webpush-vapid\.pem: the router creates it"):
        run("--config", ini)
    required_vapid_key(WebPushSettings(enabled=True, key_file=tmp_path / "webpush-vapid.pem"))
    run("--config", ini)
    monkeypatch.setenv("TOCSIN_NTF_ALLOW_PRIVATE_HOSTS", "on")
    run("--config", ini)
    assert [each.webpush is not None for each in made] == [False, True, True]
    assert [each.public_only for each in made] == [True, True, False]


def test_the_router_opens_its_folder_only_if_it_hands_over(tmp_path: Path) -> None:
    folder = tmp_path / "handover"
    assert opened_handover(DeliverySettings(handover=folder), CREDENTIALS) is None
    assert (
        opened_handover(DeliverySettings(engine=DeliveryEngine.SPARK, handover=folder), CREDENTIALS)
        is not None
    )
    assert (tmp_path / "handover-keys" / KEY_FILE).exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot use the folder delivery_handover = "):
        opened_handover(
            DeliverySettings(engine=DeliveryEngine.SPARK, handover=tmp_path / "file" / "x"), CREDENTIALS
        )


def test_a_router_with_an_address_is_met_there_and_an_absent_one_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_credentials(tmp_path, CREDENTIALS)
    path = tmp_path / "ntf-server.ini"
    text = "[TOCSIN]\napns_prod_host: off\napns_dev_host: off\ndelivery_handover_address: tls://0.0.0.0:1\n"
    path.write_text(text)
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=KEY_VARIABLE):
        run("--config", path, "--dry-run")
    monkeypatch.setenv(KEY_VARIABLE, encode_base64url(bytes(32)))
    assert run("--config", path, "--dry-run", "--json", "--lake", tmp_path / "lake") == 0
    told = capsys.readouterr()
    fingerprint = encode_base64url(CREDENTIALS.fingerprint)
    assert f"deliver: tls://{fingerprint}@127.0.0.1:1 does not answer yet" in told.err
    assert (json.loads(told.out)["handed_over"], json.loads(told.out)["routers"]) == (0, 1)
    with pytest.raises(ConfigError, match="write tls://FINGERPRINT@h:1"):
        run("--config", path, "--handover", "tls://h:1")


def test_the_router_opens_an_address_with_the_key_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DeliverySettings(engine=DeliveryEngine.SPARK, handover_address="tls://127.0.0.1:5226")
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=KEY_VARIABLE):
        opened_handover(settings, CREDENTIALS)
    monkeypatch.setenv(KEY_VARIABLE, encode_base64url(bytes(32)))
    assert opened_handover(settings, CREDENTIALS) is not None
