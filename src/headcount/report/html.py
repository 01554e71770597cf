"""What self-contained pages are made of: templates, the report's style sheet, JSON in scripts."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

ASSETS = Path(__file__).with_name("assets")


def asset(name: str) -> Markup:
    """A style sheet or a script of the report."""
    return Markup((ASSETS / name).read_text(encoding="utf-8"))


def script_json(value: Any) -> Markup:
    """JSON that is safe inside <script>: without `<` nothing in it ends the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


@cache
def page_template(name: str, folder: Path = ASSETS) -> jinja2.Template:
    """The template of a page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name)
