"""Pages of the site that are not in docs/: they are copied in, and links follow them.

A document is read in two places, in the repository and on the site. Its links are written for the
repository; here each link that leaves docs/ is turned to where the site has that page.
"""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

import headcount as hc

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROJECT = DOCS / "project"  # ignored by git, written anew by each build
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")


def pages() -> dict[Path, Path]:
    """Each page outside docs/, and where the site has it."""
    found = {
        ROOT / f"{name}.md": name.lower() for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")
    }
    for page in sorted((ROOT / "preregistrations").glob("*/README.md")):
        found[page] = f"preregistrations/{page.parent.name}"
    return {page: PROJECT / f"{place}.md" for page, place in found.items()}


def relinked(text: str, before: Path, now: Path) -> str:
    """`text`, written for the page `before`, with the links that the page `now` needs."""
    moved = pages() | {
        ROOT / "preregistrations": DOCS / "preregistrations.md",
        ROOT / "README.md": DOCS / "index.md",
    }

    def link(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(before.parent / match[1]))
        return os.path.relpath(moved.get(target, target), now.parent)

    return LINK.sub(link, text)


def copy_pages(_app: Sphinx) -> None:
    for page, copy in pages().items():
        text = relinked(page.read_text(encoding="utf-8"), page, copy)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:
            copy.write_text(text, encoding="utf-8")


def relink(_app: Sphinx, name: str, source: list[str]) -> None:
    page = DOCS / f"{name}.md"
    if page.exists() and PROJECT not in page.parents:
        source[0] = relinked(source[0], page, page)


def add_explorer(app: Sphinx, failure: Exception | None) -> None:
    """The explorer is a page of its own, beside those that are built from documents."""
    if failure is None and app.builder.format == "html":
        hc.explore(app.outdir / "explore.html")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", copy_pages)
    app.connect("source-read", relink)
    app.connect("build-finished", add_explorer)
    return {"parallel_read_safe": True}
