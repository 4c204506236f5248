from __future__ import annotations

from tocsin.smp_router.settings.settings import SmpSettings

HOUR = 3600.0


def test_the_defaults_are_those_of_the_reference() -> None:
    """smp.md 9.1; quota, passes, flushes and time limits are constants there."""
    settings = SmpSettings()
    assert settings.message_quota == 128
    assert (settings.message_ttl, settings.message_expiry_interval) == (21 * 24 * HOUR, 2 * HOUR)
    assert settings.expire_messages_on_start
    assert (settings.notification_ttl, settings.notification_expiry_interval) == (24 * HOUR, HOUR)
    assert (settings.notification_interval, settings.end_interval) == (1.5, 15.0)
    assert (settings.tls_handshake_seconds, settings.hello_seconds) == (60.0, 120.0)
    assert (settings.inactive_ttl, settings.inactive_check_interval) == (6 * HOUR, HOUR)
    assert settings.write_queue_blocks == 128
    assert settings.proxy.client_concurrency == 32
    assert settings.daily_block_queue_quota == 20
    assert settings.new_queues
    assert settings.accept_service_credentials
    assert settings.accept_without_alpn


def test_direct_notifications_are_on_unless_switched_off() -> None:
    assert SmpSettings().direct.enabled
