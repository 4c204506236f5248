"""`tocsin ntf cert`: replaces the TLS certificate under the same authority."""

from __future__ import annotations

import argparse

from tocsin.cli.ntf.router_kind import NTF
from tocsin.cli.routers import cert

NAME = "cert"
SUMMARY = cert.SUMMARY
DESCRIPTION = cert.DESCRIPTION
EXAMPLE = "tocsin ntf cert --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cert.add_arguments(parser, NTF)


def run(options: argparse.Namespace) -> int:
    return cert.run(options, NTF)
