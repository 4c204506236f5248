"""`tocsin migrate …`: from the reference's server to Tocsin, and back."""

from __future__ import annotations

from tocsin.migrate import ntf_move as migrate_ntf
from tocsin.migrate import smp_move as migrate_smp

NAME = "migrate"
SUMMARY = "move from the reference's server to Tocsin, or back"
DESCRIPTION = (
    "Reads settings, certificates and store of a server, says what will happen, does it, and counts afterwards. "
    "What is read stays as it is. --dry-run only says it; --back prepares folders for the reference."
)
EXAMPLE = "tocsin migrate smp --dry-run"
SUBCOMMANDS = (migrate_smp, migrate_ntf)
