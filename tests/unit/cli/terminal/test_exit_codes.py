"""Exit codes: one table, which every command keeps to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tocsin.cli import main
from tocsin.cli.terminal import exit_codes
from tocsin.cli.terminal.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parents[4]
COMMANDS = sorted(Path(exit_codes.__file__).parents[1].rglob("*.py"))


def test_the_table_in_the_documentation_is_that_of_the_code() -> None:
    section = (ROOT / "docs/configuration.md").read_text("utf-8").partition("## Exit codes")[2]
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", section, re.MULTILINE))
    assert rows == {str(code.value): code.meaning for code in ExitCode}


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_no_command_returns_another_number(path: Path) -> None:
    for function in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(function, ast.FunctionDef) and function.name == "run":
            returned = [
                node.value
                for statement in ast.walk(function)
                if isinstance(statement, ast.Return) and statement.value is not None
                for node in ast.walk(statement.value)
                if isinstance(node, ast.Constant) and type(node.value) is int
            ]
            assert set(returned) <= set(ExitCode), path.name


def test_codes_of_wrong_calls_and_interruptions(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as end:
        main.run(["no-such-command"])
    assert end.value.code == ExitCode.USAGE

    def interrupted(*_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("tocsin.cli.self_check.run", interrupted)
    assert main.run(["self-check"]) == ExitCode.INTERRUPTED
    assert main.run(["ping", "smp:/oops"]) == ExitCode.WRONG
