"""Every place that accepts connections asks the kernel to probe silent peers: a vanished one must free its place."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).resolve().parents[2] / "src" / "tocsin"
ACCEPTING: Final = frozenset({"accept", "start_server", "create_server", "start_unix_server"})
"""Methods that give accepted sockets."""
NOT_SOCKETS: Final = frozenset({"handshake.accept", "accepted.accept"})


def calls(tree: ast.AST) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def accepts(tree: ast.AST) -> bool:
    return any(call.rpartition(".")[2] in ACCEPTING and call not in NOT_SOCKETS for call in calls(tree))


MODULES: Final = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if any(name in (text := path.read_text("utf-8")) for name in ACCEPTING) and accepts(ast.parse(text))
]


def test_the_listeners_are_found() -> None:
    names = {str(path.relative_to(SOURCE)) for path in MODULES}
    assert {"transport/listener.py", "operate/operator_listener.py"} <= names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_that_accepts_connections_sets_keep_alive(path: Path) -> None:
    assert "keep_alive" in calls(ast.parse(path.read_text("utf-8")))
