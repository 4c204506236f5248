"""Writes all generated pages and pictures: `python -m tools.diagrams`."""

from __future__ import annotations

from tools.diagrams.files import made_files

if __name__ == "__main__":
    for path, text in made_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
