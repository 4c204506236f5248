"""The Java that is found, and that the one of the pip package runs Spark's command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.pipeline.spark import java

TOOLS = "/usr/bin:/bin"


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "$@"\n')
    program.chmod(0o755)
    return program


def test_a_java_that_is_named_is_taken_as_it_is(tmp_path: Path) -> None:
    fake_java(tmp_path / "mine", "17.0.2")
    assert java.java_home({"JAVA_HOME": str(tmp_path / "mine"), "PATH": TOOLS}) == tmp_path / "mine"


def test_a_name_where_no_java_runs_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"JAVA_HOME is .*nowhere"):
        java.java_home({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": TOOLS})


@pytest.mark.parametrize(
    ("version", "taken"), [("17.0.1", True), ("21", True), ("11.0.2", False), ("25", False)]
)
def test_the_java_on_the_path_is_taken_if_spark_supports_it(
    tmp_path: Path, version: str, taken: bool
) -> None:
    program = fake_java(tmp_path / "system", version)
    home = java.java_home({"PATH": str(program.parent)}, tmp_path / "cache")
    assert (str(program) in (home / "bin" / "java").read_text()) is taken


def test_arguments_reach_java_but_for_the_module_it_lacks(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "system", "17.0.1")
    home = java.java_home({"PATH": str(program.parent)}, tmp_path / "cache")
    given = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-opens=x", "", "last"]
    told = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert told.stdout == "-Da=b c --add-opens=x  last\n"


def test_without_any_java_there_is_that_of_the_package(tmp_path: Path) -> None:
    home = java.java_home({"PATH": ""}, tmp_path)
    assert java.version_of(home / "bin" / "java") == 21
    assert java.java_home({"PATH": ""}, tmp_path) == home


def test_without_the_package_the_error_names_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"tocsin\[pipeline\]"):
        java.java_home({"PATH": ""}, tmp_path)


def test_a_cache_that_cannot_be_written_is_replaced_by_one_of_our_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = java.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "file")})
    assert java.version_of(home / "bin" / "java") == 21
