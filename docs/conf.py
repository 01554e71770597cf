"""The documentation site: `make docs` builds it into docs/_build/html."""

import sys
from pathlib import Path

import headcount

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "headcount"
author = "The headcount developers"
version = release = headcount.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "outside", "reference"]
exclude_patterns = ["_build", "_ext"]
myst_heading_anchors = 3
smartquotes = False

# Docstrings write names in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = "headcount"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

linkcheck_timeout = 20
linkcheck_anchors = False
