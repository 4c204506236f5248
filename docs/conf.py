"""Settings of the documentation site: `make docs` builds it with Sphinx from the Markdown pages of this folder."""

from __future__ import annotations

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text("utf-8"))[
    "project"
]

project = "Tocsin"
version = release = _PROJECT["version"]
author = "the Tocsin developers"
project_copyright = f"{author}, AGPL-3.0-or-later"

extensions = ["myst_parser"]
exclude_patterns = ["conf.py"]
myst_heading_anchors = 4
nitpicky = True  # a reference that leads nowhere is an error: the site is built with -W
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = "Tocsin"
html_static_path = ["site"]
html_css_files = ["tocsin.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    # The colours of the page of `tocsin up`; both pairs have a contrast of at least 4.5.
    "light_css_variables": {"color-brand-primary": "#1f7a5c", "color-brand-content": "#17634a"},
    "dark_css_variables": {"color-brand-primary": "#7fd1b3", "color-brand-content": "#7fd1b3"},
}
