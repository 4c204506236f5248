"""The fuzz targets hold over their whole corpus and a short real run, and the fuzzer does find bugs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Final

import pytest

import fuzz.__main__ as fuzz_command
from fuzz import mutation, samples
from fuzz.contract import ContractBroken, Target
from fuzz.corpus import REGRESSIONS, regressions, seeds
from fuzz.one_target import FOUND
from fuzz.recordings import ROOT
from fuzz.targets import TARGETS
from tocsin.protocol.ntf.dialect import NTF
from tocsin.protocol.ntf.token_commands import SetPeriodicPush
from tocsin.protocol.smp.dialect import SMP
from tocsin.wire.reader import WireReader
from tocsin.wire.writer import WireWriter

BROKEN: Final = "tests.fuzzing.broken_target:forgets_a_bound"
SMOKE_RUNS: Final = 1000
MUTANTS: Final = 500

# Names of functions that are given bytes or text by a peer.
DECODER: Final = re.compile(
    r"(decode|parse|unseal|unpad|split_(batch|transmission)|from_(der|json|block)|\w+_from_der|read_block"
    r"|validate_|certificate_public_key|answer|accept|finish)(_|\b)"
)
NOT_FROM_PEERS: Final = frozenset({"tocsin.crypto.credentials"})
"""Reads PEM files of the operator."""
NEVER_CALLED: Final = frozenset({"tocsin.protocol.messages.Message.decode_body"})
"""A message without parameters is not decoded but looked up."""


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[bytes]]:
    return seeds()


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Options that keep a test's corpora and findings out of the repository."""
    return ["--work", str(tmp_path / "work"), "--regressions", str(tmp_path / "regressions")]


@pytest.mark.parametrize("name", TARGETS)
def test_target_holds_over_its_seeds_and_regressions(name: str, corpus: dict[str, list[bytes]]) -> None:
    inputs = corpus[name] + [path.read_bytes() for path in regressions(name)]
    for data in inputs:
        TARGETS[name](data)
        TARGETS[name](data[: len(data) // 2])
    assert inputs


def test_every_folder_of_regressions_belongs_to_a_target() -> None:
    assert {path.name for path in REGRESSIONS.iterdir() if path.is_dir()} <= set(TARGETS)


def test_every_kind_of_message_has_a_seed() -> None:
    for kinds, messages in (
        (SMP.commands.kinds, samples.SMP_COMMANDS),
        (SMP.responses.kinds, samples.SMP_RESPONSES),
        (NTF.commands.kinds, samples.NTF_COMMANDS),
        (NTF.responses.kinds, samples.NTF_RESPONSES),
    ):
        assert {type(message) for message in messages} == set(kinds)


def test_every_decoder_is_reached_by_the_seeds_of_some_target(corpus: dict[str, list[bytes]]) -> None:
    called = functions_called(lambda: [TARGETS[name](data) for name in TARGETS for data in corpus[name]])
    expected = dict(decoders())
    assert len(expected) > 50
    missed = {name for name, code in expected.items() if code not in called}
    assert missed == NEVER_CALLED


def decoders() -> Iterator[tuple[str, CodeType]]:
    """Functions and methods of wire, crypto and protocol that read what a peer sent."""
    for folder in ("tocsin.wire", "tocsin.crypto", "tocsin.protocol"):
        package = importlib.import_module(folder)
        for found in pkgutil.walk_packages(package.__path__, f"{folder}."):
            if found.name in NOT_FROM_PEERS:
                continue
            module = importlib.import_module(found.name)
            for name, function in functions_of(module):
                if DECODER.match(name.rpartition(".")[2].lstrip("_")):
                    yield f"{found.name}.{name}", function.__code__


def functions_of(module: object) -> Iterator[tuple[str, FunctionType]]:
    own = inspect.getmodule(module)
    for name, value in vars(module).items():
        if inspect.isfunction(value) and inspect.getmodule(value) is own:
            yield name, value
        if inspect.isclass(value) and inspect.getmodule(value) is own:
            for inner, member in vars(value).items():
                function = getattr(member, "__func__", member)
                if inspect.isfunction(function):
                    yield f"{name}.{inner}", function


def functions_called(run: Callable[[], object]) -> set[CodeType]:
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return called


@pytest.mark.timeout(300)
def test_short_campaign_over_all_targets_finds_nothing(
    folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code = fuzz_command.main(["--runs", str(SMOKE_RUNS), "--seconds", "1", "--seed", "1", *folders])
    shown = capsys.readouterr().out
    assert exit_code == 0, shown
    for name in TARGETS:
        assert re.search(rf"│ {name} *│ +[1-9][\d,]*.* ok ", shown), shown


@pytest.mark.parametrize("name", TARGETS)
def test_target_holds_over_mutants_of_its_seeds(name: str, corpus: dict[str, list[bytes]]) -> None:
    source = random.Random(name)
    for _ in range(MUTANTS):
        TARGETS[name](mutation.mutate(source, corpus[name], TARGETS[name].longest))


@pytest.mark.parametrize("engine", ["auto", "mutation"])
def test_bug_in_a_target_is_found_kept_and_can_be_replayed(
    engine: str, folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code = fuzz_command.main(["--target", BROKEN, "--runs", "100000", "--engine", engine, *folders])
    shown = capsys.readouterr().out
    assert exit_code == 1, shown
    (kept,) = (path for path in (tmp_path / "regressions").rglob("*") if path.is_file())
    assert "IndexError" in shown
    assert str(kept) in shown
    assert kept.read_bytes().hex() in shown
    assert len(kept.read_bytes()) <= 2, "the finding was shortened"
    replay = [sys.executable, "-m", "fuzz", "--target", BROKEN, "--replay", str(kept)]
    replayed = subprocess.run(replay, cwd=ROOT, capture_output=True, text=True, check=False)
    assert replayed.returncode == FOUND
    assert "IndexError" in replayed.stdout


def test_forgotten_bounds_check_in_a_decoder_is_found(
    corpus: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_without_looking(self: WireReader, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    monkeypatch.setattr(WireReader, "take", take_without_looking)
    finding = first_finding(TARGETS["command"], corpus["command"])
    assert isinstance(finding.broken.__cause__, IndexError | AssertionError)


def test_encoder_that_loses_something_is_found(
    corpus: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode_body(self: SetPeriodicPush, out: WireWriter, version: int) -> None:
        out.u16(self.minutes & 0xFF)

    monkeypatch.setattr(SetPeriodicPush, "encode_body", encode_body)
    finding = first_finding(TARGETS["command"], corpus["command"])
    assert "gives the message back" in str(finding)
    assert finding.data.hex() in str(finding)


def first_finding(target: Target, inputs: list[bytes]) -> mutation.Finding:
    with pytest.raises(mutation.Finding) as caught:
        mutation.fuzz(target, inputs, runs=100_000, seconds=10, seed=1, report=lambda done: None)
    return caught.value


def test_same_seed_gives_the_same_mutants(corpus: dict[str, list[bytes]]) -> None:
    first, second = random.Random(3), random.Random(3)
    for _ in range(100):
        assert mutation.mutate(first, corpus["hello"], 64) == mutation.mutate(second, corpus["hello"], 64)


def test_finding_names_target_and_input() -> None:
    with pytest.raises(ContractBroken, match="target sample, input 2aff: OverflowError: too much"):
        Target("sample", "tests.fuzzing.broken_target:always_raises")(b"\x2a\xff")


def test_fallback_says_loudly_that_it_has_no_coverage(
    folders: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_command, "atheris_problem", lambda: "No module named 'atheris'")
    exit_code = fuzz_command.main(["--target", "key", "--runs", "500", *folders])
    shown = capsys.readouterr().out
    assert exit_code == 0, shown
    assert "NOT COVERAGE-GUIDED" in shown
    assert "fuzzing with mutation" in shown


def test_missing_recordings_are_told_in_a_sentence(
    folders: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fuzz_command.main(["--engine", "mutation", "--vectors", str(tmp_path), *folders]) == 2
    assert "takes its seeds from recorded traffic" in " ".join(capsys.readouterr().out.split())


def test_unknown_target_is_refused_by_name(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_command.main(["--engine", "mutation", "--target", "blocks", *folders]) == 2
    assert "no target is named 'blocks'" in " ".join(capsys.readouterr().out.split())


def test_list_shows_every_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_command.main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in TARGETS)
