"""The page's scripts: small ES modules, joined into one script in the order of their imports.

Nothing is loaded over a network, and no bundler is needed: `import` lines are left out, `export` is
taken off, and every module is written once, after those that it imports. Names at the top of a
module must therefore be unique; `joined_script` refuses one that is not.
"""

from __future__ import annotations

import re
from pathlib import Path

ASSETS = Path(__file__).with_name("assets")
# What the worker and the page begin with.
WORKER, PAGE = "worker.js", "main.js"

_IMPORT = re.compile(r'^import\s[^;]*?from "([^"]+)";\n', re.MULTILINE)
_NAME = re.compile(r"^(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
_NAMES = re.compile(r"^const [\[{]([^\]}=]+)[\]}] = ", re.MULTILINE)


def joined_script(*entries: str) -> str:
    """The modules `entries` (paths under assets/) and all that they import, as one strict script.

    >>> "class Words" in joined_script("engine/contexts.js")
    True
    """
    modules: dict[Path, str] = {}
    for entry in entries:
        _gather(ASSETS / entry, modules)
    bodies = [re.sub(r"^export ", "", text, flags=re.MULTILINE) for text in modules.values()]
    _require_unique_names(bodies)
    return '"use strict";\n' + "\n".join(bodies)


def _gather(path: Path, modules: dict[Path, str]) -> None:
    """Read a module after those that it imports."""
    path = path.resolve()
    if path in modules:
        return
    text = path.read_text(encoding="utf-8")
    for name in _IMPORT.findall(text):
        _gather(path.parent / name, modules)
    modules[path] = _IMPORT.sub("", text)


def _require_unique_names(bodies: list[str]) -> None:
    names = [name for body in bodies for name in _NAME.findall(body)]
    names += [
        name.strip()
        for body in bodies
        for group in _NAMES.findall(body)
        for name in group.split(",")
    ]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise AssertionError(f"two modules define {', '.join(twice)}; rename one of them")
