"""The generated files and their sources. A test compares the committed files with these."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.diagrams import agent_states, direct_notifications, ntf_states

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
IMAGES: Final = DOCS / "images" / "states"


def made_files() -> dict[Path, str]:
    pictures = {**agent_states.pictures(), **ntf_states.pictures(), **direct_notifications.pictures()}
    return {
        DOCS / "agent-states.md": agent_states.page(),
        DOCS / "ntf-states.md": ntf_states.page(),
        **{IMAGES / f"{name}.svg": svg for name, svg in pictures.items()},
    }
