"""`tocsin smp cert`: replaces the TLS certificate under the same authority."""

from __future__ import annotations

import argparse

from tocsin.cli.routers import cert
from tocsin.cli.smp.router_kind import SMP

NAME = "cert"
SUMMARY = cert.SUMMARY
DESCRIPTION = cert.DESCRIPTION
EXAMPLE = "tocsin smp cert --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cert.add_arguments(parser, SMP)


def run(options: argparse.Namespace) -> int:
    return cert.run(options, SMP)
