"""Examines push providers: their keys, who may read them, and whether the provider accepts them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, assert_never

from tocsin.doctor.findings import DoctorSettings, Finding, bad, ok, skipped, warn
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.providers import opened_providers, served_settings, service_account, vapid_key
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.protocol.ntf.pushes import CheckMessagesPush
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.fcm.client import FcmProvider
from tocsin.push.provider import (
    Accepted,
    PushOutcome,
    PushRefused,
    PushRequest,
    RetryLater,
    TokenInvalid,
    Urgency,
)
from tocsin.push.settings import ApnsSettings, FcmSettings, WebPushSettings

NO_DEVICE: Final = b"0" * 64
"""A token of no device: Apple checks our key first, and then reports that the device does not exist."""
SUBJECT: Final = "push provider"
KEY: Final = "key for Apple"
WEB_PUSH_KEY: Final = "key for Web Push"
FIREBASE_KEY: Final = "key for Firebase"
NO_REGISTRATION: Final = b"0" * 64
"""A registration of no device: Google checks our account first."""
_ACCOUNT_REFUSED: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND"})
_EMPTY: Final = b'{"aps":{"content-available":1}}'


async def push_findings(settings: NtfSettings, doctor: DoctorSettings) -> list[Finding]:
    try:
        served, warning = served_settings(settings)
    except ConfigError as error:
        return [bad(KEY, str(error), "put the key file from Apple there, and set its key id")]
    findings = [
        *_key_findings(settings.apns),
        *_web_push_findings(settings.webpush),
        *_firebase_findings(settings.fcm),
    ]
    if warning is not None:
        step = "get a key at developer.apple.com, set apns_key_file and apns_key_id; or set the hosts to off"
        findings.append(warn(SUBJECT, warning, step))
    firebase = _is_usable(settings.fcm)
    names = ", ".join([*served.apns.endpoints, *(["fcm"] if firebase else [])])
    if not names:
        return findings or [
            warn(SUBJECT, "none is configured, so no device can register", "set apns_prod_host")
        ]
    if not doctor.online:
        return [*findings, skipped(SUBJECT, f"{names}: not tested", "run `tocsin doctor --online` to test")]
    return findings + await _test_providers(served.apns, settings.fcm if firebase else None)


def _key_findings(apns: ApnsSettings) -> Iterator[Finding]:
    """`served_settings` has checked that the file is a key."""
    if apns.key_file is not None:
        yield _file_finding(KEY, apns.key_file)


def _web_push_findings(webpush: WebPushSettings) -> Iterator[Finding]:
    if not webpush.enabled:
        return
    try:
        key = vapid_key(webpush)
    except ConfigError as error:
        yield bad(
            WEB_PUSH_KEY,
            str(error),
            "remove the file and restart the router, which creates a new key; devices must register again",
        )
        return
    if key is None:
        yield ok(WEB_PUSH_KEY, "the router creates it at its first start")
    else:
        yield _file_finding(WEB_PUSH_KEY, webpush.key_file)


def _firebase_findings(fcm: FcmSettings) -> Iterator[Finding]:
    try:
        account = service_account(fcm)
    except ConfigError as error:
        yield bad(FIREBASE_KEY, str(error), "put the key file from Google there")
        return
    if account is not None and fcm.key_file is not None:
        yield _file_finding(FIREBASE_KEY, fcm.key_file, "the key of a service account")


def _is_usable(fcm: FcmSettings) -> bool:
    try:
        return service_account(fcm) is not None
    except ConfigError:
        return False


def _file_finding(subject: str, path: Path, kind: str = "an ES256 key") -> Finding:
    mode = path.stat().st_mode & 0o777
    if mode & 0o007:
        return bad(subject, f"every user of this machine can read it ({mode:03o})", f"chmod 600 {path}")
    if mode & 0o070:
        return warn(subject, f"its group can read it ({mode:03o})", f"chmod 600 {path}")
    return ok(subject, f"it is {kind}, and only its owner can read it")


async def _test_providers(apns: ApnsSettings, fcm: FcmSettings | None) -> list[Finding]:
    """Send each provider a push to a device that does not exist."""
    findings = []
    expires = int(time.time()) + 60
    async with opened_providers(apns, None, fcm) as providers:
        for name, provider in providers.items():
            if isinstance(provider, ApnsProvider):
                push = PushRequest(NO_DEVICE, _EMPTY, Urgency.BACKGROUND, str(uuid.uuid4()), expires)
                outcome = await provider.send(push)
                findings.append(outcome_finding(name.text, outcome, with_key=apns.key_file is not None))
            elif isinstance(provider, FcmProvider):
                check, push_id = CheckMessagesPush(), str(uuid.uuid4())
                push = PushRequest(NO_REGISTRATION, check, Urgency.BACKGROUND, push_id, expires)
                findings.append(firebase_finding(await provider.send(push)))
    return findings


def firebase_finding(outcome: PushOutcome) -> Finding:
    """The finding for a push to a registration that does not exist."""
    match outcome:
        case Accepted() | TokenInvalid():
            return ok(SUBJECT, "fcm answers, and accepts our service account")
        case RetryLater() if outcome.reason in _ACCOUNT_REFUSED or outcome.reason.startswith("oauth_invalid"):
            step = "check fcm_key_file, the rights of the service account, and this machine's clock"
            return bad(SUBJECT, f"fcm does not accept our service account: {outcome.reason}", step)
        case RetryLater():
            step = "check the network and firewall of this machine, which must reach port 443 or the configured one"
            return bad(SUBJECT, f"fcm cannot be used now: {outcome.reason}", step)
        case PushRefused():
            return bad(
                SUBJECT, f"fcm answers, but refuses our pushes: {outcome.reason}", "check fcm_key_file"
            )
    assert_never(outcome)


def outcome_finding(name: str, outcome: PushOutcome, *, with_key: bool) -> Finding:
    """The finding for a push to a device that does not exist."""
    match outcome:
        case Accepted() | TokenInvalid():
            return ok(SUBJECT, f"{name} answers{', and accepts our key' if with_key else ''}")
        case RetryLater() if "ProviderToken" in outcome.reason or "Forbidden" in outcome.reason:
            step = "check apns_key_id, apns_team_id and apns_topic, and this machine's clock"
            return bad(SUBJECT, f"{name} answers, but does not accept our key: {outcome.reason}", step)
        case RetryLater():
            step = "check the network and firewall of this machine, which must reach port 443 or the configured one"
            return bad(SUBJECT, f"{name} cannot be used now: {outcome.reason}", step)
        case PushRefused():
            step = "check apns_topic and the key's rights at Apple"
            return bad(SUBJECT, f"{name} answers, but refuses our pushes: {outcome.reason}", step)
    assert_never(outcome)
