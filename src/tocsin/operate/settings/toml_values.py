"""Converts TOML values to the text that settings are read from, and back."""

from __future__ import annotations

import json
from typing import Final

from tocsin.operate.settings.setting_values import TomlForm, ValueKind

_DELETE: Final = "\x7f"


def text_of(kind: ValueKind, value: object) -> str:
    """Raises ValueError if the value has the wrong type: a number or a boolean in quotes is a text."""
    if kind.off and value is False:
        return "off"
    if not kind.separator or not isinstance(value, list):
        return _item_text(kind.form, value)
    items = [_item_text(kind.form, each) for each in value]
    if any(kind.separator in item or not item for item in items):
        raise ValueError
    return kind.separator.join(items)


def _item_text(form: TomlForm, value: object) -> str:
    match form, value:
        case TomlForm.BOOLEAN, bool():
            return "on" if value else "off"
        case TomlForm.NUMBER, int() if not isinstance(value, bool):
            return str(value)
        case TomlForm.NUMBER, float():
            return f"{value:.9f}".rstrip("0").rstrip(".")  # without an exponent
        case TomlForm.TEXT, str():
            return value
    raise ValueError


def literal_of(kind: ValueKind, text: str) -> str:
    """The TOML literal for a text that the kind reads."""
    if kind.off and text == "off":
        return "false"
    if kind.separator:
        parts = [part.strip() for part in text.split(kind.separator)]
        return f"[{', '.join(_item_literal(kind.form, part) for part in parts if part)}]"
    return _item_literal(kind.form, text)


def _item_literal(form: TomlForm, text: str) -> str:
    match form:
        case TomlForm.BOOLEAN:
            return "true" if text == "on" else "false"
        case TomlForm.NUMBER:
            return text
        case TomlForm.TEXT:
            # TOML's basic strings use the escapes of JSON, and also escape DEL.
            return json.dumps(text, ensure_ascii=False).replace(_DELETE, "\\u007f")
