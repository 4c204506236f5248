"""docs/howto/add-a-provider.md names what one has to touch, with Firebase as the example: no more, and no less."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tocsin"
TEXT = (ROOT / "docs" / "howto" / "add-a-provider.md").read_text("utf-8")
PATHS = set(re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:\.py|/))`", TEXT))
NAMED_FOR_OTHER_REASONS = frozenset(
    {"push/provider.py", "push/http2/push_provider.py", "ntf_router/delivery/token_engines.py"}
)


def test_what_the_page_names_exists() -> None:
    for path in PATHS:
        assert (
            (SOURCE / path).exists() or (ROOT / path).exists() or (ROOT / "tests/unit/push" / path).exists()
        )
    for name, path in re.findall(r"`(_?[A-Z][A-Za-z_]{3,})` in\s+`([^`]+)`", TEXT):
        file = SOURCE / path if (SOURCE / path).exists() else ROOT / path
        assert re.search(rf"\b{name}\b", file.read_text("utf-8")), f"{path} has no {name}"


def test_the_page_names_every_module_that_knows_firebase() -> None:
    knowing = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search("fcm|firebase", path.read_text("utf-8"), re.IGNORECASE)
    }
    outside = {path for path in knowing if not path.startswith("push/fcm/")}
    named = {path for path in PATHS if path.endswith(".py") and (SOURCE / path).exists()}
    assert named - NAMED_FOR_OTHER_REASONS == outside
