"""The push providers of an NTF router's settings."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tocsin.crypto.web_push import SCALAR_BYTES, VapidKey
from tocsin.errors import BadKey, ConfigError
from tocsin.events.private_files import private_draft
from tocsin.ntf_router.settings.keys import NtfSettingKey
from tocsin.ntf_router.settings.settings import NtfSettings
from tocsin.protocol.ntf.device_tokens import PushProvider
from tocsin.push.apns.client import ApnsProvider
from tocsin.push.apns.request import ProviderToken
from tocsin.push.provider import NullProvider, Provider
from tocsin.push.settings import ApnsEndpoint, ApnsSettings, FcmSettings, WebPushSettings
from tocsin.transport.dialer import find_addresses

if TYPE_CHECKING:
    from tocsin.push.fcm.client import FcmProvider
    from tocsin.push.fcm.service_account import ServiceAccount
    from tocsin.push.webpush.client import WebPushProvider

# Providers that are off are not imported: a router starts faster without them.
TEST: Final = PushProvider.APNS_TEST.text
_HOW_TO_GET_A_KEY: Final = (
    "set [TOCSIN] apns_key_file and apns_key_id (or APNS_KEY_FILE and APNS_KEY_ID) "
    "to the key that Apple gave you"
)
_HOW_TO_GET_AN_ACCOUNT: Final = (
    "create a key of a service account in the settings of your Firebase project, and set [TOCSIN] fcm_key_file "
    "to it"
)


def served_settings(settings: NtfSettings) -> tuple[NtfSettings, str | None]:
    """Return the settings without providers that cannot work, and a warning about them if there are any.

    Apple's service takes no push without a key. If the operator set its address, this raises ConfigError. If the
    address is only the default, the router refuses Apple's device tokens, so that no push is lost silently.
    """
    apns = settings.apns
    if (apns.key_file is None) is not (apns.key_id is None):
        missing = "apns_key_id" if apns.key_id is None else "apns_key_file"
        raise ConfigError(f"[TOCSIN] {missing} is not set: {_HOW_TO_GET_A_KEY}")
    if apns.key_file is not None:
        _provider_token(apns)
        return settings, None
    real = [name for name in apns.endpoints if name != TEST]
    for name in real:
        if f"{NtfSettingKey.environment_prefix}{name.upper()}_HOST" in settings.sources:
            raise ConfigError(f"{name} needs a key: {_HOW_TO_GET_A_KEY}, or set {name}_host to off")
    if not real:
        return settings, None
    others: dict[str, ApnsEndpoint] = {
        name: each for name, each in apns.endpoints.items() if name not in real
    }
    warning = (
        f"device tokens of {' and '.join(real)} are refused because there is no key: {_HOW_TO_GET_A_KEY}"
    )
    return replace(settings, apns=replace(apns, endpoints=others)), warning


def served_names(settings: NtfSettings) -> list[str]:
    """Return the names of the providers whose device tokens are accepted, without the null provider."""
    web_push = [PushProvider.WEBPUSH.text] if settings.webpush.enabled else []
    fcm = [PushProvider.FCM.text] if settings.fcm.key_file is not None else []
    return [*settings.apns.endpoints, *web_push, *fcm]


def service_account(fcm: FcmSettings) -> ServiceAccount | None:
    """Read the key file of Firebase, if there is one. Raises ConfigError that names the file."""
    if fcm.key_file is None:
        return None
    from tocsin.push.fcm.service_account import ServiceAccount

    try:
        return ServiceAccount.from_json(fcm.key_file.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"cannot read fcm_key_file {fcm.key_file} ({error.strerror}): {_HOW_TO_GET_AN_ACCOUNT}"
        ) from error
    except BadKey as error:
        raise ConfigError(f"fcm_key_file {fcm.key_file}: {error}: {_HOW_TO_GET_AN_ACCOUNT}") from error


def vapid_key(webpush: WebPushSettings) -> VapidKey | None:
    """Return the VAPID key, or None if Web Push is off or the key does not exist yet. Raises ConfigError."""
    path = webpush.key_file
    if not webpush.enabled:
        return None
    try:
        return VapidKey.from_pem(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read webpush_key_file {path}: {error.strerror}") from error
    except BadKey as error:
        raise ConfigError(f"webpush_key_file {path}: {error}") from error


def existing_vapid_key(webpush: WebPushSettings) -> VapidKey:
    """Return the VAPID key of a router, for a process that must not create another one. Raises ConfigError."""
    key = vapid_key(webpush)
    if key is None:
        raise ConfigError(
            f"no webpush_key_file {webpush.key_file}: the router creates it at its first start; copy it to the same "
            "path on each machine of the job"
        )
    return key


def required_vapid_key(webpush: WebPushSettings) -> VapidKey:
    """Return the VAPID key of Web Push, which is on, and create it if it does not exist. Raises ConfigError."""
    return vapid_key(webpush) or _new_vapid_key(webpush)


def _new_vapid_key(webpush: WebPushSettings) -> VapidKey:
    """Create a key file that only its owner can read. Raises ConfigError."""
    key = VapidKey.from_scalar(secrets.token_bytes(SCALAR_BYTES))
    try:
        with private_draft(webpush.key_file) as draft:
            draft.write_bytes(key.pem)
    except ConfigError as error:
        raise ConfigError(
            f"{error}: set [TOCSIN] webpush_key_file to a path that the router may write"
        ) from error
    return key


def _provider_token(apns: ApnsSettings) -> ProviderToken | None:
    """Read the APNs key. Raises ConfigError that names the file."""
    if apns.key_file is None or apns.key_id is None:
        return None
    try:
        return ProviderToken(apns.key_file.read_bytes(), apns.key_id, apns.team_id, time.time)
    except OSError as error:
        raise ConfigError(
            f"cannot read apns_key_file {apns.key_file} ({error.strerror}): {_HOW_TO_GET_A_KEY}"
        ) from error
    except BadKey as error:
        raise ConfigError(f"apns_key_file {apns.key_file}: {error}: {_HOW_TO_GET_A_KEY}") from error


@asynccontextmanager
async def opened_providers(
    apns: ApnsSettings,
    webpush: WebPushSettings | None = None,
    fcm: FcmSettings | None = None,
    *,
    public_only: bool = True,
) -> AsyncIterator[dict[PushProvider, Provider]]:
    """Open a provider for each endpoint, those of Web Push and Firebase if they are on, and the null provider.

    Closes them at the end. With `public_only`, Web Push services at private addresses are not dialled. Raises
    ConfigError.
    """
    token = _provider_token(apns)
    async with AsyncExitStack() as stack:
        providers: dict[PushProvider, Provider] = {PushProvider.APNS_NULL: NullProvider()}
        for name, endpoint in apns.endpoints.items():
            provider = _apns_provider(name, endpoint, apns, token)
            stack.push_async_callback(provider.close)
            providers[PushProvider[name.upper()]] = provider
        if webpush is not None and webpush.enabled:
            web_push = _web_push_provider(webpush, public_only=public_only)
            stack.push_async_callback(web_push.close)
            providers[PushProvider.WEBPUSH] = web_push
        if fcm is not None and (account := service_account(fcm)) is not None:
            firebase = _fcm_provider(fcm, account)
            stack.push_async_callback(firebase.close)
            providers[PushProvider.FCM] = firebase
        yield providers


def _apns_provider(
    name: str, endpoint: ApnsEndpoint, apns: ApnsSettings, token: ProviderToken | None
) -> ApnsProvider:
    try:
        return ApnsProvider(endpoint, apns, token)
    except OSError as error:
        raise ConfigError(
            f"{name}_ca_file {endpoint.ca_file} is unusable: {error.strerror or error}"
        ) from error


def _web_push_provider(webpush: WebPushSettings, *, public_only: bool) -> WebPushProvider:
    from tocsin.push.webpush.client import WebPushProvider

    key = required_vapid_key(webpush)
    try:
        return WebPushProvider(webpush, key, partial(find_addresses, public_only=public_only))
    except OSError as error:
        raise ConfigError(
            f"webpush_ca_file {webpush.ca_file} is unusable: {error.strerror or error}"
        ) from error


def _fcm_provider(fcm: FcmSettings, account: ServiceAccount) -> FcmProvider:
    from tocsin.push.fcm.client import FcmProvider

    try:
        return FcmProvider(fcm, account, time.time)
    except OSError as error:
        raise ConfigError(f"fcm_ca_file {fcm.ca_file} is unusable: {error.strerror or error}") from error
