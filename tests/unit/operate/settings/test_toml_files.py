"""TOML files with the line of every key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.operate.settings.toml_files import TomlEntry, TomlTable, parse_toml, read_toml

TEXT = '''\
# a comment
top = 1

["quoted table".inner] # [not.this]
a.b = "x = 1"
many = [
  1, # one
  2,
]
long = """
[not a table]
no_key = 2
"""
[other]
inline = { c = true, d = { e = 1 } }
nothing = {}
'''


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_every_key_has_its_table_and_its_line(line_end: str) -> None:
    file = parse_toml(TEXT.replace("\n", line_end), "file")
    assert [(each.path, each.line) for each in file.entries] == [
        (("top",), 2),
        (("quoted table", "inner", "a", "b"), 5),
        (("quoted table", "inner", "many"), 6),
        (("quoted table", "inner", "long"), 10),
        (("other", "inline", "c"), 15),
        (("other", "inline", "d", "e"), 15),
        (("other", "nothing"), 16),
    ]
    assert file.tables == (
        TomlTable(("quoted table", "inner"), 4),
        TomlTable(("other",), 14),
    )
    assert [each.value for each in file.entries[1:3]] == ["x = 1", [1, 2]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = 1\na = 2\n", "file: not TOML: cannot overwrite a value (at line 2"),
        ("a = on\n", "(at line 1"),
        ("a: 1\n", "(at line 1"),
        ('a = "half\n', "(at line 1"),
        ("[a]\n[a]\n", "(at line 2"),
        ("[a]\n[[b.c]]\n", "file, line 2: write [b.c] instead of [[b.c]]"),
    ],
)
def test_invalid_toml_is_reported_with_its_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_toml(text, "file")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_is_not_in_the_repr() -> None:
    assert "hidden" not in repr(TomlEntry(("a",), "hidden", 1))


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.toml: the file cannot be read"):
        read_toml(tmp_path / "x.toml")
    (tmp_path / "y.toml").write_bytes(b"a = 1\n\xff")
    with pytest.raises(ConfigError, match=r"y\.toml, line 2: not UTF-8"):
        read_toml(tmp_path / "y.toml")
    (tmp_path / "z.toml").write_bytes(b"")
    assert read_toml(tmp_path / "z.toml").entries == ()
