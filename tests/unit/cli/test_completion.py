"""Shell completion and help cover the whole tree of commands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.command_tree import Command, commands_of
from tocsin.cli.completion import SHELLS, completion_script
from tocsin.cli.main import build_parser, run

COMMANDS = commands_of(build_parser())
BASH = shutil.which("bash") or "bash"
NEEDS_BASH = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def test_the_tree_has_every_level() -> None:
    paths = {command.path for command in COMMANDS}
    assert {(), ("smp",), ("smp", "store", "import"), ("doctor",), ("completion",)} <= paths


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in COMMANDS:
        for name in (*command.path, *(choice for each in command.arguments for choice in each.choices)):
            assert name in script, command.path
        for option in command.options:
            for name in option.names:
                fish = f" -l {name[2:]} " if name.startswith("--") else f" -s {name[1:]} "
                assert (fish if shell == "fish" else name) in script, (command.path, name)
    assert "%(" not in script, "a default that argparse did not fill in"


@NEEDS_BASH
def test_bash_accepts_its_script(tmp_path: Path) -> None:
    script = tmp_path / "tocsin.bash"
    script.write_text(completion_script("bash", build_parser()))
    checked = subprocess.run([BASH, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(("shell", "check"), [("zsh", "-n"), ("fish", "--no-execute")])
def test_other_shells_accept_theirs(shell: str, check: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    script = tmp_path / "script"
    script.write_text(completion_script(shell, build_parser()))
    checked = subprocess.run([program, check, str(script)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def completed(folder: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    script = folder / "tocsin.bash"
    script.write_text(completion_script("bash", build_parser()))
    program = (
        f'source "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_shtab_tocsin; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    answer = subprocess.run(
        [BASH, "-c", program, "bash", *words], capture_output=True, text=True, check=True, cwd=folder
    )
    assert answer.stderr == ""
    return set(answer.stdout.split())


@NEEDS_BASH
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tocsin", "doc"], {"doctor"}),
        (["tocsin", "smp", "st"], {"start", "store"}),
        (["tocsin", "smp", "store", "imp"], {"import"}),
        (["tocsin", "smp", "start", "--log"], {"--log-level"}),
        (["tocsin", "smp", "start", "--log-level", ""], {"DEBUG", "INFO", "WARNING", "ERROR"}),
        (["tocsin", "ntf", "config", "ch"], {"check"}),
        (["tocsin", "completion", ""], {"bash", "zsh", "fish"}),
        (["tocsin", "completion", "-"], {"-h", "--help"}),
        (["tocsin", "smp", "start", "--config", "tocsin.b"], {"tocsin.bash"}),
        (["tocsin", "smp", "init", "--host", ""], set()),
        (["tocsin", "nonsense", "--ver"], {"--version"}),
    ],
)
def test_bash_completes(words: list[str], offered: set[str], tmp_path: Path) -> None:
    assert completed(tmp_path, *words) == offered


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(("tocsin", *command.path)))
def test_every_command_has_a_description_and_an_example(command: Command) -> None:
    name = " ".join(("tocsin", *command.path))
    assert len(command.description) > 20
    assert command.description.endswith(".")
    assert command.epilog.startswith("example: ")
    assert name in command.epilog
    if command.path:
        assert command.summary
        assert not command.summary.endswith(".")
    for option in (*command.options, *command.arguments):
        assert option.help, option.names


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(("tocsin", *command.path)))
def test_examples_can_be_parsed(command: Command) -> None:
    """Options and commands of the example exist; values are not looked at."""
    words = command.epilog.removeprefix("example: ").split(" && ")[0].split()
    if words[0] != "tocsin":
        return
    options = {name for each in COMMANDS for option in each.options for name in option.names}
    assert {word.split("=")[0] for word in words if word.startswith("-")} <= options
