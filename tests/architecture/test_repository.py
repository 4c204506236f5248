"""Promises of the repository itself: pins, set-up, documentation of what it depends on."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tomllib
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tools import setup_venv
from tools.pin_hashes import Pin, read_pins, without_hashes, write_pins
from tools.supply_chain import AUDIT_PINS, bill_of_materials

OLDEST_PYTHON: Final = "3.11.0"
ROOT: Final = Path(__file__).resolve().parents[2]
PIN_FILES: Final = sorted((ROOT / "requirements").glob("*.txt"))

# Written so that no pattern matches its own source text.
INDEX_ADDRESS: Final = re.compile(
    r"--(?:extra-)?index-url|--find[-]links|PIP_(?:EXTRA_)?INDEX_URL|PIP_FIND[_]LINKS"
    r"|pypi\.(?:org|python\.org)|pythonhosted\.org|file:/{3}"
)
WORKPLACE_PATH: Final = re.compile(r"(?<![\w.:/-])/(?:home|Users|root|work)/\w")
NOT_OURS: Final = frozenset({".git", ".venv", "build", "dist", "__pycache__"})


@cache
def tracked_texts() -> dict[str, str]:
    """Text files of the repository; without git (a source archive), every file that is not made by a tool."""
    names: list[str]
    if shutil.which("git") and (ROOT / ".git").exists():
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
            "\0"
        )
    else:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if is_ours(path.relative_to(ROOT))]
    texts = {}
    for name in names:
        path = ROOT / name
        if name and path.is_file():
            try:
                texts[name] = path.read_text("utf-8")
            except UnicodeDecodeError:
                continue
    return texts


def is_ours(path: Path) -> bool:
    return not any(
        part in NOT_OURS or part.endswith((".egg-info", "_cache")) or part == ".hypothesis"
        for part in path.parts
    )


def pins(path: Path) -> list[str]:
    return [pin.requirement for pin in read_pins(path.read_text("utf-8")) if isinstance(pin, Pin)]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.mark.parametrize("pattern", [INDEX_ADDRESS, WORKPLACE_PATH], ids=["package index", "workplace"])
def test_no_file_names_a_package_index_or_a_workplace(pattern: re.Pattern[str]) -> None:
    texts = tracked_texts()
    assert "pyproject.toml" in texts
    found = [f"{name}: {match[0]}" for name, text in texts.items() for match in pattern.finditer(text)]
    assert not found, "\n".join(found)


def test_the_search_for_addresses_and_paths_can_find_some() -> None:
    assert INDEX_ADDRESS.search("pip install --extra-" + "index-url x")
    assert INDEX_ADDRESS.search("https://pypi" + ".org/simple")
    assert WORKPLACE_PATH.search("cd /ho" + "me/someone/tocsin")
    assert not WORKPLACE_PATH.search("https://example.org/work/x")


@pytest.mark.parametrize("path", PIN_FILES, ids=lambda path: path.name)
def test_every_pin_is_exact(path: Path) -> None:
    lines = pins(path)
    assert lines
    for line in lines:
        requirement = Requirement(line)
        [specifier] = requirement.specifier
        assert specifier.operator == "==", line
        assert "*" not in specifier.version, line
        assert requirement.url is None, line


def test_every_file_of_pins_is_installed_by_the_set_up() -> None:
    """But for the audit's, which has an environment of its own."""
    installed = {f"requirements/{path.name}" for path in PIN_FILES if path.name != AUDIT_PINS}
    assert installed == set(setup_venv.PIN_FILES)


def test_every_pin_has_the_hashes_of_its_files() -> None:
    assert without_hashes(ROOT) == []


def test_a_pin_without_hashes_is_found_and_comments_stay(tmp_path: Path) -> None:
    text = '# why\na==1 ; python_version < "3.13" \\\n    --hash=sha256:12 \\\n    --hash=sha256:34\nb==2\n'
    lines = read_pins(text)
    assert lines == ["# why", Pin('a==1 ; python_version < "3.13"', ("12", "34")), Pin("b==2")]
    assert write_pins(lines) == text
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/x.txt").write_text(text)
    assert without_hashes(tmp_path) == ["x.txt: b==2"]


def test_the_bill_of_materials_names_every_pin_with_its_hashes() -> None:
    components = bill_of_materials(ROOT)["components"]
    found = {(each["name"], each["version"]) for each in components}
    wanted = [Requirement(line) for path in PIN_FILES if path.name != AUDIT_PINS for line in pins(path)]
    assert found == {(each.name, str(each.specifier).removeprefix("==")) for each in wanted}
    assert all(each["hashes"] for each in components)
    assert {each["name"] for each in components if each["scope"] == "required"} == {
        Requirement(line).name for line in pins(ROOT / "requirements/runtime.txt")
    }
    unlicensed = [
        each["name"] for each in components if each["scope"] != "excluded" and "licenses" not in each
    ]
    assert unlicensed == []


def test_every_pin_takes_the_oldest_python_that_we_promise() -> None:
    """Debian's 3.11 is older than 3.11.5, which one pinned package wanted: the set-up failed there."""
    installed = {canonicalize_name(each.metadata["Name"]): each.metadata for each in distributions()}
    for requirement in (Requirement(line) for path in PIN_FILES for line in pins(path)):
        metadata = installed.get(canonicalize_name(requirement.name))
        if metadata is not None and (wanted := metadata["Requires-Python"]):
            assert SpecifierSet(wanted).contains(OLDEST_PYTHON), f"{requirement} wants Python {wanted}"


def test_nothing_is_raised_where_older_pythons_would_wrap_it() -> None:
    """Before 3.11.4, it comes in a group: SMP routers that had been away were not connected again."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for block in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(block, ast.TryStar):
                raised = [
                    node for each in block.handlers for node in ast.walk(each) if isinstance(node, ast.Raise)
                ]
                assert not raised, f"{path.name}, line {raised[0].lineno}: raise it after the `try`"


def test_no_package_is_pinned_twice_for_one_machine() -> None:
    here = [
        canonicalize_name(r.name)
        for path in PIN_FILES
        if path.name != AUDIT_PINS
        for line in pins(path)
        if applies(r := Requirement(line))
    ]
    assert sorted(here) == sorted(set(here))


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate()


def test_declared_ranges_contain_the_pins() -> None:
    runtime = [Requirement(line) for line in pins(ROOT / "requirements/runtime.txt")]
    pinned = {canonicalize_name(requirement.name): requirement for requirement in runtime}
    for text in pyproject()["project"]["dependencies"]:
        declared = Requirement(text)
        [specifier] = pinned[canonicalize_name(declared.name)].specifier
        assert declared.specifier.contains(specifier.version), text


def test_every_dependency_is_explained() -> None:
    explained = {
        canonicalize_name(name)
        for name in re.findall(
            r"^\| `([^`]+)` \|", (ROOT / "docs/dependencies.md").read_text("utf-8"), re.MULTILINE
        )
    }
    pinned = {canonicalize_name(Requirement(line).name) for path in PIN_FILES for line in pins(path)}
    assert explained == pinned, "docs/dependencies.md and requirements/*.txt must name the same packages"


def test_every_folder_of_the_package_is_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    folders = {path.parent.name for path in (ROOT / "src/tocsin").glob("*/__init__.py")}
    missing = sorted(folder for folder in folders if f"`{folder}/`" not in text)
    assert not missing, f"docs/architecture.md does not name {missing}"


def test_every_make_target_has_help_text() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^([a-z][\w-]*):(?!=)(.*)$", makefile, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    assert sorted(phony[1].split()) == sorted(name for name, _ in targets)
    assert not [name for name, rest in targets if not re.search(r"## \S", rest)]


def test_make_help_lists_every_target() -> None:
    make = shutil.which("make")
    assert make is not None, "make is one of the three things this repository needs"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    shown = subprocess.run(
        [make, "help"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    listed = re.findall(r"^  make ([\w-]+) +\S", shown.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(
        re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    lines = script.read_text("utf-8").splitlines()
    assert "set -euo pipefail" in lines
    assert "exec make test" in lines


def test_set_up_can_be_parsed_by_an_old_python() -> None:
    source = (ROOT / "tools/setup_venv.py").read_text("utf-8")
    ast.parse(source, feature_version=(3, 7))
    assert source.index("sys.version_info < (3, 11)") < source.index("import fcntl")


def test_set_up_stamp_follows_content_python_and_place(tmp_path: Path) -> None:
    def checkout(name: str) -> Path:
        for file in setup_venv.STAMP_INPUTS:
            target = tmp_path / name / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file)
        return tmp_path / name

    here = checkout("here")
    stamp = setup_venv.stamp_for(here, (3, 11, 7))
    os.utime(here / "pyproject.toml", (0, 0))
    assert setup_venv.stamp_for(here, (3, 11, 7)) == stamp
    assert setup_venv.stamp_for(here, (3, 12, 0)) != stamp
    assert setup_venv.stamp_for(checkout("elsewhere"), (3, 11, 7)) != stamp
    (here / "requirements/dev.txt").write_text("pytest==0\n")
    assert setup_venv.stamp_for(here, (3, 11, 7)) != stamp


def test_set_up_without_stamp_or_python_is_not_current(tmp_path: Path) -> None:
    for file in setup_venv.STAMP_INPUTS:
        target = tmp_path / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file)
    assert not setup_venv.is_current(tmp_path, (3, 11, 7))
    python = setup_venv.venv_python(tmp_path)
    python.parent.mkdir(parents=True)
    setup_venv.stamp_file(tmp_path).write_text(setup_venv.stamp_for(tmp_path, (3, 11, 7)))
    assert not setup_venv.is_current(tmp_path, (3, 11, 7))
    python.write_text("")
    python.chmod(0o755)
    assert setup_venv.is_current(tmp_path, (3, 11, 7))
