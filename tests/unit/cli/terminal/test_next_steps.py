"""Errors that occur in a router's log too get their next step where a person reads them."""

from __future__ import annotations

import pytest

from tocsin.cli.main import run
from tocsin.cli.terminal.next_steps import with_next_step
from tocsin.durable.postgres.database_errors import DatabaseUnavailable
from tocsin.errors import ConfigError, ConnectFailed, PeerIdentityMismatch, StoreUnavailable, TocsinError


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (DatabaseUnavailable("the PostgreSQL database is unavailable: x"), "check that the database runs"),
        (PeerIdentityMismatch("the fingerprint is another"), "check the address"),
        (ConnectFailed("cannot listen on port 1"), "choose another port"),
        (ConnectFailed("no connection to port 1"), "check that the router runs"),
    ],
)
def test_an_error_gets_its_next_step(error: TocsinError, step: str) -> None:
    assert with_next_step(error).startswith(f"{error}; {step}")


def test_an_error_that_names_its_step_stays_as_it_is() -> None:
    for error in (ConfigError("x is not set: set it"), StoreUnavailable("the disk is full: make room")):
        assert with_next_step(error) == str(error)


def test_a_router_that_does_not_run_is_told_with_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    address = "smp://AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=@127.0.0.1:1"
    assert run(["ping", address]) == 1
    assert capsys.readouterr().err.endswith("; check that the router runs, and its address\n")
