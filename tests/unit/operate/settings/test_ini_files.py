"""Reading INI files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.errors import ConfigError
from tocsin.operate.settings.ini_files import MAX_FILE_BYTES, IniEntry, IniSection, parse_ini, read_ini


def test_sections_keys_and_comments_are_told_apart() -> None:
    file = parse_ini("# one\n\n[A]\nx: 1\n; two\n  y = b # not a comment \r\n[B]\nx=\n", "file")
    assert file.sections == (IniSection("A", 3), IniSection("B", 7))
    assert file.entries == (
        IniEntry("A", "x", "1", 4),
        IniEntry("A", "y", "b # not a comment", 6),
        IniEntry("B", "x", "", 8),
    )


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("db: postgresql://smp@/store?a=b", "db", "postgresql://smp@/store?a=b"),
        ("address = [::1]:5223", "address", "[::1]:5223"),
        ("key:=:", "key", "=:"),
    ],
)
def test_the_first_sign_ends_the_key(line: str, key: str, value: str) -> None:
    [entry] = parse_ini(f"[A]\n{line}\n", "file").entries
    assert (entry.key, entry.value) == (key, value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x: 1\n", "file, line 1: a key before the first [SECTION]"),
        ("[A\n", "file, line 1: [SECTION] is expected"),
        ("\n[ ]\n", "file, line 2: [SECTION] is expected"),
        ("[A]\n\nsecret\n", "file, line 3: `key: value` is expected"),
        ("[A]\n: secret\n", "file, line 2: `key: value` is expected"),
        ("[A]\nx: 1\n[B]\n[A]\nx: 2\n", "file, line 5: [A] x is set already on line 2"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_ini(text, "file")
    assert str(caught.value).startswith(says)
    assert "secret" not in str(caught.value)


def test_values_are_not_shown_by_accident() -> None:
    assert "secret" not in repr(parse_ini("[A]\npassword: secret\n", "file"))


def test_files_are_utf_8_with_or_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "x.ini"
    path.write_text("[A]\nx: ü\n", encoding="utf-8-sig")
    assert read_ini(path).entries == (IniEntry("A", "x", "ü", 2),)
    path.write_bytes(b"[A]\nx: \xff\n")
    with pytest.raises(ConfigError, match=r"x\.ini, line 2: not UTF-8 text"):
        read_ini(path)


def test_files_that_cannot_be_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.ini: the file cannot be read: No such file"):
        read_ini(tmp_path / "missing.ini")
    path = tmp_path / "large.ini"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="too large"):
        read_ini(path)
