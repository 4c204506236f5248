"""Which push providers the settings give."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tests.doubles.web_push_service import WebPushPhone, WebPushService
from tests.unit.push.webpush.stage import WebPushStage
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.providers import (
    opened_providers,
    served_names,
    served_settings,
    service_account,
    vapid_key,
)
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.fake.fcm import ACCOUNT_FILE, running_fake_fcm
from tocsin.push.fcm.client import FcmProvider
from tocsin.push.provider import Accepted, RetryLater
from tocsin.push.settings import ApnsEndpoint, ApnsSettings, FcmSettings, WebPushSettings
from tocsin.push.webpush.client import WebPushProvider

TEST_ONLY = ApnsSettings(endpoints={"apns_test": ApnsEndpoint("localhost", 6010)})


def pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key.p8"
    path.write_bytes(pem(ec.generate_private_key(ec.SECP256R1())))
    return path


async def test_with_a_key_apples_services_are_served(key_file: Path) -> None:
    chosen = NtfSettings(apns=ApnsSettings(key_file=key_file, key_id="ABC"))
    served, warning = served_settings(chosen)
    assert (served, warning) == (chosen, None)
    async with opened_providers(served.apns) as providers:
        assert set(providers) == {PushProvider.APNS_NULL, PushProvider.APNS_PROD, PushProvider.APNS_DEV}


async def test_without_a_key_only_the_default_services_are_left_out() -> None:
    served, warning = served_settings(NtfSettings())
    assert served.apns.endpoints == {}
    assert warning is not None
    assert "apns_prod and apns_dev" in warning
    async with opened_providers(served.apns) as providers:
        assert set(providers) == {PushProvider.APNS_NULL}


async def test_the_test_service_needs_no_key() -> None:
    served, warning = served_settings(NtfSettings(apns=TEST_ONLY))
    assert warning is None
    async with opened_providers(served.apns) as providers:
        assert set(providers) == {PushProvider.APNS_NULL, PushProvider.APNS_TEST}


def test_a_service_that_was_asked_for_needs_a_key() -> None:
    asked = NtfSettings(sources={"TOCSIN_NTF_APNS_PROD_HOST": "a file, line 3"})
    with pytest.raises(
        ConfigError, match=r"apns_prod needs a key: set .*apns_key_file.*or set apns_prod_host"
    ):
        served_settings(asked)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"key_file": Path("/none.p8"), "key_id": "A"}, "cannot read apns_key_file /none.p8 .*APNS_KEY_FILE"),
        ({"key_file": Path("/none.p8")}, "apns_key_id is not set"),
        ({"key_id": "A"}, "apns_key_file is not set"),
    ],
)
def test_a_key_that_is_not_there_is_told_in_one_sentence(change: dict[str, object], says: str) -> None:
    settings = NtfSettings(apns=replace(ApnsSettings(), **change))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=says) as caught:
        served_settings(settings)
    assert "\n" not in str(caught.value)


def test_a_key_of_another_kind_is_told(tmp_path: Path) -> None:
    path = tmp_path / "wrong.p8"
    path.write_bytes(pem(ed25519.Ed25519PrivateKey.generate()))
    with pytest.raises(ConfigError, match=r"wrong.p8: .*P-256"):
        served_settings(NtfSettings(apns=ApnsSettings(key_file=path, key_id="A")))


async def test_a_ca_file_that_cannot_be_read_is_told() -> None:
    broken = replace(TEST_ONLY, endpoints={"apns_test": ApnsEndpoint("localhost", 1, Path("/none.pem"))})
    with pytest.raises(ConfigError, match=r"apns_test_ca_file /none.pem is unusable: No such file"):
        async with opened_providers(broken):
            pass


async def test_the_key_for_web_push_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    wanted = WebPushSettings(enabled=True, key_file=tmp_path / "vapid.pem", subject="https://op.test")
    assert vapid_key(wanted) is None
    for _ in range(2):
        async with opened_providers(TEST_ONLY, wanted) as providers:
            assert isinstance(providers[PushProvider.WEBPUSH], WebPushProvider)
    assert stat.S_IMODE(wanted.key_file.stat().st_mode) == 0o600
    first = vapid_key(wanted)
    async with opened_providers(TEST_ONLY, wanted):
        assert first is not None
        assert vapid_key(wanted).public == first.public  # type: ignore[union-attr]
    assert os.listdir(tmp_path) == [wanted.key_file.name]


async def test_without_web_push_there_is_no_key(tmp_path: Path) -> None:
    unwanted = WebPushSettings(key_file=tmp_path / "vapid.pem")
    async with opened_providers(TEST_ONLY, unwanted) as providers:
        assert PushProvider.WEBPUSH not in providers
    assert not os.listdir(tmp_path)
    assert served_names(NtfSettings(apns=TEST_ONLY, webpush=unwanted)) == ["apns_test"]
    wanted = replace(unwanted, enabled=True)
    assert served_names(NtfSettings(apns=TEST_ONLY, webpush=wanted)) == ["apns_test", "webpush"]


async def test_a_key_or_certificate_for_web_push_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path = tmp_path / "vapid.pem"
    path.write_text("no key")
    wanted = WebPushSettings(enabled=True, key_file=path)
    with pytest.raises(ConfigError, match=r"webpush_key_file .*vapid\.pem: the VAPID key file holds no"):
        vapid_key(wanted)
    with pytest.raises(ConfigError, match=r"webpush_key_file .*: Is a directory"):
        vapid_key(replace(wanted, key_file=tmp_path))
    elsewhere = replace(wanted, key_file=tmp_path / "none" / "vapid.pem")
    with pytest.raises(ConfigError, match=r"cannot write .*vapid\.pem: .*: set \[TOCSIN\] webpush_key_file"):
        async with opened_providers(TEST_ONLY, elsewhere):
            pass
    path.unlink()
    with pytest.raises(ConfigError, match=r"webpush_ca_file .* is unusable"):
        async with opened_providers(TEST_ONLY, replace(wanted, ca_file=tmp_path / "ca.pem")):
            pass


async def test_web_push_does_not_reach_into_the_network_unless_allowed(tmp_path: Path) -> None:
    async with WebPushService(tmp_path).running(("localhost",)) as service:
        wanted = WebPushSettings(
            enabled=True, key_file=tmp_path / "v.pem", subject="https://op.test", ca_file=service.ca_file
        )
        phone = WebPushPhone(service, "localhost")
        for public_only in (True, False):
            async with opened_providers(TEST_ONLY, wanted, public_only=public_only) as providers:
                stage = WebPushStage(service, cast(WebPushProvider, providers[PushProvider.WEBPUSH]))
                outcome = await stage.push(phone)
            assert isinstance(outcome, RetryLater if public_only else Accepted)
            assert len(service.received) == (0 if public_only else 1)


async def test_firebase_is_served_with_the_key_of_an_account(tmp_path: Path) -> None:
    async with running_fake_fcm(tmp_path) as fcm:
        fcm_settings = FcmSettings(key_file=tmp_path / ACCOUNT_FILE, ca_file=fcm.ca_file)
        async with opened_providers(TEST_ONLY, None, fcm_settings) as providers:
            assert isinstance(providers[PushProvider.FCM], FcmProvider)
        async with opened_providers(TEST_ONLY, None, FcmSettings()) as providers:
            assert PushProvider.FCM not in providers
        account = service_account(fcm_settings)
        assert account is not None
        assert account.project == fcm.project
    assert service_account(FcmSettings()) is None
    assert served_names(NtfSettings(apns=TEST_ONLY, fcm=fcm_settings)) == ["apns_test", "fcm"]
    assert served_names(NtfSettings(apns=TEST_ONLY)) == ["apns_test"]
    with pytest.raises(ConfigError, match=r"fcm_ca_file .* is unusable"):
        async with opened_providers(TEST_ONLY, None, replace(fcm_settings, ca_file=tmp_path / "none.pem")):
            pass


def test_a_key_file_of_firebase_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path = tmp_path / "account.json"
    with pytest.raises(
        ConfigError, match=r"cannot read fcm_key_file .*account\.json \(No such file.*Firebase"
    ):
        service_account(FcmSettings(key_file=path))
    path.write_text("{}")
    with pytest.raises(
        ConfigError, match=r"fcm_key_file .*: not the key file of a service account"
    ) as caught:
        service_account(FcmSettings(key_file=path))
    assert "\n" not in str(caught.value)
