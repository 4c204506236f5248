"""`tocsin migrate …`: arguments and output of moves between the reference's servers and Tocsin.

The moves themselves are in `tocsin.migrate`.
"""

from __future__ import annotations

from tocsin.cli.migrate import ntf, smp, tables

NAME = "migrate"
SUMMARY = "move a router from the reference's server to Tocsin, or back"
DESCRIPTION = (
    "Reads the settings, certificates and store of a server, shows what will happen, does it, and then counts the "
    "records to verify the result. The source is never changed. --dry-run only shows the plan. --back prepares folders "
    "for the reference's server."
)
EXAMPLE = "tocsin migrate smp --dry-run"
SUBCOMMANDS = (smp, ntf, tables)
