"""Examines push providers: their keys, who may read them, and whether the provider accepts them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, assert_never

from tocsin.doctor.findings import DoctorSettings, Finding, bad, ok, skipped, warn
from tocsin.errors import ConfigError
from tocsin.ntf_router.delivery.providers import opened_providers, served_settings, vapid_key
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.provider import (
    Accepted,
    PushOutcome,
    PushRefused,
    PushRequest,
    RetryLater,
    TokenInvalid,
    Urgency,
)
from tocsin.push.settings import ApnsSettings, WebPushSettings

NO_DEVICE: Final = b"0" * 64
"""A token of no device: Apple checks our key first, and then reports that the device does not exist."""
SUBJECT: Final = "push provider"
KEY: Final = "key for Apple"
WEB_PUSH_KEY: Final = "key for Web Push"
_EMPTY: Final = b'{"aps":{"content-available":1}}'


async def push_findings(settings: NtfSettings, doctor: DoctorSettings) -> list[Finding]:
    try:
        served, warning = served_settings(settings)
    except ConfigError as error:
        return [bad(KEY, str(error), "put the key file from Apple there, and set its key id")]
    findings = [*_key_findings(settings.apns), *_web_push_findings(settings.webpush)]
    if warning is not None:
        step = "get a key at developer.apple.com, set apns_key_file and apns_key_id; or set the hosts to off"
        findings.append(warn(SUBJECT, warning, step))
    names = ", ".join(served.apns.endpoints)
    if not names:
        return findings or [
            warn(SUBJECT, "none is configured, so no device can register", "set apns_prod_host")
        ]
    if not doctor.online:
        return [*findings, skipped(SUBJECT, f"{names}: not tested", "run `tocsin doctor --online` to test")]
    return findings + await _test_providers(served.apns)


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


def _file_finding(subject: str, path: Path) -> Finding:
    mode = path.stat().st_mode & 0o777
    if mode & 0o007:
        return bad(subject, f"every user of this machine can read it ({mode:03o})", f"chmod 600 {path}")
    if mode & 0o070:
        return warn(subject, f"its group can read it ({mode:03o})", f"chmod 600 {path}")
    return ok(subject, "it is an ES256 key, and only its owner can read it")


async def _test_providers(apns: ApnsSettings) -> list[Finding]:
    """Send each provider a push to a device that does not exist."""
    findings = []
    async with opened_providers(apns) as providers:
        for name, provider in providers.items():
            if isinstance(provider, ApnsProvider):
                expires = int(time.time()) + 60
                push = PushRequest(NO_DEVICE, _EMPTY, Urgency.BACKGROUND, str(uuid.uuid4()), expires)
                outcome = await provider.send(push)
                findings.append(outcome_finding(name.text, outcome, with_key=apns.key_file is not None))
    return findings


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
