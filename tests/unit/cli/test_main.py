"""The command line as a person uses it."""

from __future__ import annotations

import asyncio

import pytest

from tests.doubles.ntf_harness import ntf_router
from tests.doubles.routers import HOST, running_router
from tocsin.cli.main import COMMANDS, build_parser, run
from tocsin.crypto.web_push import VapidKey
from tocsin.protocol.addresses import Scheme
from tocsin.protocol.dialect import Dialect
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.smp.dialect import SMP

ADDRESS_OF_NOBODY = "smp://H5uLO4QIu8uoFtuKlwNYjWEzzYcZ1Ww7dbXr44KY3mA=@127.0.0.1:1"


@pytest.mark.parametrize("command", [module.NAME for module in COMMANDS])
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        build_parser().parse_args([command, "--help"])
    assert end.value.code == 0
    assert f"example: tocsin {command}" in capsys.readouterr().out


def test_a_wrong_call_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(["no-such-command"])
    assert end.value.code == 2
    assert "no-such-command" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("smp:/oops", "not a router address"),
        (ADDRESS_OF_NOBODY, "no connection to port 1 of 127.0.0.1"),
        (ADDRESS_OF_NOBODY.replace("smp:", "xftp:"), "xftp routers cannot be pinged"),
    ],
)
def test_what_went_wrong_is_one_line(address: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ping", address]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tocsin: ")
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("dialect", [SMP, NTF], ids=["SMP", "NTF"])
async def test_ping_tells_the_version_and_the_round_trips(
    dialect: Dialect, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_router(dialect=dialect) as router:
        code = await asyncio.to_thread(run, ["ping", str(router.address), "--count", "2"])
    assert code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"identity verified, {dialect.name} v{dialect.supported.highest}" in shown
    assert "PONG 2 after" in shown


async def test_ping_shows_the_key_for_web_push(capsys: pytest.CaptureFixture[str]) -> None:
    key = VapidKey.from_scalar(b"\x11" * 32).public
    async with ntf_router(vapid_key=key, public_hosts=(HOST,)) as ntf:
        address = ntf.location.text(Scheme.NTF)
        assert await asyncio.to_thread(run, ["ping", address, "--count", "1", "--web-push-key"]) == 0
    shown = capsys.readouterr().out
    assert "BAIX5hfwtkQ5KCePlpmeaaI6TywVK99tbN9m5bgCgtTtGUp968uXcS0t2jyoWqh2Wlb0X8dYWZZS8ol8ZTBuV5Q" in shown
    assert run(["ping", address.replace("ntf://", "smp://"), "--web-push-key"]) == 1
    assert "only NTF routers have one" in capsys.readouterr().err


def test_the_self_check_shows_every_version_and_finds_nothing_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["self-check"]) == 0
    shown = capsys.readouterr().out
    assert "58 of 58 connections" in shown
    assert "failed" not in shown
