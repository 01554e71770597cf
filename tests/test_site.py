"""The documentation site builds without a warning, needs no other host, and its links resolve."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import headcount as hc
from tests.processes import printed

ROOT = Path(__file__).parent.parent
# Warnings, then the exit code.
BUILD = """
import sys
from contextlib import redirect_stderr
from sphinx.cmd.build import build_main
with redirect_stderr(sys.stdout):
    print(build_main(sys.argv[1:]))
"""
ELSEWHERE = re.compile(r"(@import|url\()\s*[\"']?(https?:)?//")
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """What a page links to, loads, names and leaves without words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.without_alt: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name"):
                self.ids.add(value or "")
            elif (tag, name) in LOADED:
                self.loaded.append(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.append(value or "")
        if tag == "img" and not dict(attrs).get("alt"):
            self.without_alt.append(dict(attrs).get("src") or "")


def broken(pages: dict[Path, Page], page: Path) -> list[str]:
    """The links of a page, and what it loads, that lead to nothing in the folder of the site."""
    found = []
    for link in pages[page].links + pages[page].loaded:
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        fragment = unquote(parts.fragment)
        missing = target in pages and fragment and fragment not in pages[target].ids
        if not target.exists() or missing:
            found.append(f"{page.name}: {link}")
    return found


def test_the_site_is_whole(tmp_path):
    """One test, since the site is built once: about 12 seconds of processor time."""
    pytest.importorskip("sphinx", reason="sphinx is not installed; the extra `docs` brings it")
    out = tmp_path / "html"
    options = ("-W", "--keep-going", "-q", "-d", tmp_path / "tree")
    assert printed(BUILD, *options, ROOT / "docs", out) == "0\n"

    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in out.rglob("*.html")}
    elsewhere = [name for page in pages.values() for name in page.loaded if urlsplit(name).netloc]
    assert elsewhere == []
    styles = {path.name: path.read_text("utf-8") for path in out.rglob("*.css")}
    assert [name for name, style in styles.items() if ELSEWHERE.search(style)] == []
    assert [link for page in pages for link in broken(pages, page)] == []
    assert [source for page in pages.values() for source in page.without_alt] == []

    named = {name for page in pages.values() for name in page.ids}
    assert {name for name in hc.__all__ if f"headcount.{name}" not in named} == set()
    assert "headcount.KeyQuery.budget" in named  # members too
    assert (out.resolve() / "explore.html") in pages
