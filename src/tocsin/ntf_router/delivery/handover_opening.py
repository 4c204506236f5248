"""The folder in which an NTF router and the `deliver` job meet, by the router's settings."""

from __future__ import annotations

import logging
from pathlib import Path

from tocsin.errors import ConfigError
from tocsin.events.pseudonyms import keys_folder
from tocsin.ntf_router.delivery.handover import HandOver, handover_key
from tocsin.ntf_router.settings.settings import DeliveryEngine, DeliverySettings
from tocsin.operate.randomness import SystemRandomness

logger = logging.getLogger(__name__)


def opened_handover(settings: DeliverySettings) -> HandOver | None:
    """None if the router pushes by itself. Raises ConfigError if the folder cannot be used."""
    if settings.engine is DeliveryEngine.INLINE or settings.handover is None:
        return None
    try:
        key = handover_key(handover_keys(settings.handover, settings.handover_keys))
        opened = HandOver(settings.handover, key, SystemRandomness())
    except OSError as error:
        raise ConfigError(
            f"delivery_handover {settings.handover} cannot be used: {error.strerror}"
        ) from error
    logger.info("notifications are handed over to `tocsin pipeline deliver` in %s", settings.handover)
    return opened


def handover_keys(folder: Path, chosen: Path | None) -> Path:
    """As with the event log: whoever copies the folder must not copy its key."""
    return keys_folder(folder, chosen)
