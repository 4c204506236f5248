"""`tocsin smp config`: checks the settings of an SMP router, or shows them."""

from __future__ import annotations

import argparse

from tocsin.cli.routers import config
from tocsin.cli.smp.router_kind import SMP

NAME = "config"
SUMMARY = config.SUMMARY
DESCRIPTION = (
    "`check` reads the settings file, the environment (TOCSIN_SMP_…) and the certificates, lists every problem, and "
    "exits with 1 if there is one. `show` lists every setting with its value and source, but no passwords. "
    "`show --format toml` converts an INI file to TOML."
)
EXAMPLE = "tocsin smp config check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    config.add_arguments(parser, SMP)


def run(options: argparse.Namespace) -> int:
    return config.run(options, SMP)
