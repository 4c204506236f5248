"""Push providers: is the key there, is it one, who may read it, and does the provider take it?"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, assert_never

from tocsin.doctor.findings import Finding, Surroundings, bad, ok, skipped, warn
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
"""In place of a device token: Apple checks the key first, and then finds that there is no such device."""
SUBJECT: Final = "push provider"
KEY: Final = "key for Apple"
WEB_PUSH_KEY: Final = "key for Web Push"
_EMPTY: Final = b'{"aps":{"content-available":1}}'


async def push_findings(settings: NtfSettings, around: Surroundings) -> list[Finding]:
    try:
        served, warning = served_settings(settings)
    except ConfigError as error:
        return [bad(KEY, str(error), "put the key file from Apple there, with its key id beside it")]
    findings = [*_key_findings(settings.apns), *_web_push_findings(settings.webpush)]
    if warning is not None:
        step = "get a key at developer.apple.com, set apns_key_file and apns_key_id; or set the hosts to off"
        findings.append(warn(SUBJECT, warning, step))
    names = ", ".join(served.apns.endpoints)
    if not names:
        return findings or [warn(SUBJECT, "none is set: no device can register", "set apns_prod_host")]
    if not around.online:
        return [*findings, skipped(SUBJECT, f"{names}: not asked", "`tocsin doctor --online` asks")]
    return findings + await _asked(served.apns)


def _key_findings(apns: ApnsSettings) -> Iterator[Finding]:
    """The file has been read by now, and is a key."""
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
            "remove the file, and the next start makes a key; devices register again",
        )
        return
    if key is None:
        yield ok(WEB_PUSH_KEY, "it is made at the first start")
    else:
        yield _file_finding(WEB_PUSH_KEY, webpush.key_file)


def _file_finding(subject: str, path: Path) -> Finding:
    mode = path.stat().st_mode & 0o777
    if mode & 0o007:
        return bad(subject, f"every user of this machine may read it ({mode:03o})", f"chmod 600 {path}")
    if mode & 0o070:
        return warn(subject, f"its group may read it ({mode:03o})", f"chmod 600 {path}")
    return ok(subject, "it is a key for ES256, and only its owner may read it")


async def _asked(apns: ApnsSettings) -> list[Finding]:
    """With a push to no device."""
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
    """Of a push to a device that does not exist."""
    match outcome:
        case Accepted() | TokenInvalid():
            return ok(SUBJECT, f"{name} answers{', and accepts our key' if with_key else ''}")
        case RetryLater() if "ProviderToken" in outcome.reason or "Forbidden" in outcome.reason:
            step = "check apns_key_id, apns_team_id and apns_topic, and this machine's clock"
            return bad(SUBJECT, f"{name} answers, but does not accept our key: {outcome.reason}", step)
        case RetryLater():
            step = "check the network and firewall of this machine; it connects to port 443, or the one that is set"
            return bad(SUBJECT, f"{name} cannot be used now: {outcome.reason}", step)
        case PushRefused():
            step = "check apns_topic and the key's rights at Apple"
            return bad(SUBJECT, f"{name} answers, but refuses our pushes: {outcome.reason}", step)
    assert_never(outcome)
