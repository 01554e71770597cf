"""The page's scripts: small ES modules, joined into one script in the order of their imports.

The page must be one file that needs no network, and Node must run the same text in the tests. So
each module becomes a function of its own that returns what it exports, and an `import` line becomes
a look at what an earlier function returned. Modules use two forms only: `import { a, b } from "…";`
and `export` before a function, a class or a single `const`.
"""

from __future__ import annotations

import re
from pathlib import Path

ASSETS = Path(__file__).with_name("assets")

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


def joined_script(*entries: str) -> str:
    """The modules `entries` (paths under assets/) and all that they import, as one strict script.

    >>> script = joined_script("engine/contexts.js")
    >>> [line for line in script.splitlines() if line.startswith("modules[")]
    ['modules["engine/streams.js"] = (() => {', 'modules["engine/contexts.js"] = (() => {']
    """
    modules: dict[str, str] = {}
    for entry in entries:
        _gather(ASSETS / entry, modules)
    return "\n".join(['"use strict";\nconst modules = {};', *modules.values()])


def _gather(path: Path, modules: dict[str, str]) -> None:
    """Add a module after those that it imports."""
    name = path.resolve().relative_to(ASSETS.resolve()).as_posix()
    if name in modules:
        return
    text = path.read_text(encoding="utf-8")
    for _, imported in _IMPORT.findall(text):
        _gather(path.parent / imported, modules)

    def looked_up(found: re.Match[str]) -> str:
        other = (path.parent / found[2]).resolve().relative_to(ASSETS.resolve()).as_posix()
        return f'const {found[1]} = modules["{other}"];\n'

    body = _EXPORT.sub(r"\1", _IMPORT.sub(looked_up, text))
    exported = ", ".join(name for _, name in _EXPORT.findall(text))
    modules[name] = f'modules["{name}"] = (() => {{\n{body}return {{ {exported} }};\n}})();\n'
