"""Sphinx: the pages in this folder, as HTML, without a request to anywhere."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from peakmem.version import __version__

project = "peakmem"
release = version = __version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "peakmem"
html_theme_options = {"footer_icons": []}
suppress_warnings = ["myst.header"]
