"""The reference, written by each build: public names from their docstrings, commands from help."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import GoogleDocstring

import headcount as hc
from headcount.cli.app import commands

DOCS = Path(__file__).parents[1]
API, COMMANDS = DOCS / "api", DOCS / "commands"  # ignored by git


def groups() -> dict[str, list[str]]:
    """The public names by the comments that head them in `headcount/__init__.py`."""
    source = Path(hc.__file__).read_text(encoding="utf-8")
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    imports = {node.lineno: node for node in block.body if isinstance(node, ast.ImportFrom)}
    found: dict[str, list[str]] = {}
    for number, line in enumerate(source.splitlines(), 1):
        if number in imports:
            names = found[list(found)[-1]]
            names += [alias.asname or alias.name for alias in imports[number].names]
        elif block.lineno < number <= (block.end_lineno or 0) and line.startswith("    # "):
            found[line.removeprefix("    # ")] = []
    return found


def api_page(title: str, names: list[str]) -> str:
    """A page of names in reStructuredText, which autodoc fills from their docstrings."""
    lines = [title, "=" * len(title), ""]
    for name in names:
        found = getattr(hc, name)
        kind = "function"
        if isinstance(found, type):
            kind = "exception" if issubclass(found, Exception) else "class"
        lines += [f".. auto{kind}:: headcount.{name}"]
        lines += ["   :members:", ""] if kind == "class" else [""]
    return "\n".join(lines)


def command_page(command: Any, words: str, level: int = 1) -> str:
    """The help of a command and of those below it, in Markdown."""
    context = command.make_context(words, [], resilient_parsing=True)
    said = (command.help or "").replace("\b", "")  # typer's mark for lines to keep as they are
    text, example = (*re.split(r"\n+Examples?:\n", said), "")[:2]
    usage = context.get_usage().removeprefix("Usage: ")
    parts = [f"{'#' * level} {words}", _prose(text), _block(usage)]
    rows = list(_rows(command, context))
    if rows:
        parts += ["\n".join(["| option | meaning |", "|---|---|", *rows])]
    if example:
        parts += ["Example:", _block(re.sub(r"^  ", "", example.strip("\n"), flags=re.MULTILINE))]
    below = getattr(command, "commands", {})
    parts += [command_page(one, f"{words} {name}", level + 1) for name, one in below.items()]
    return "\n\n".join(parts)


def _prose(text: str) -> str:
    return re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", text).strip()


def _block(text: str) -> str:
    return f"```sh\n{text.rstrip()}\n```"


def _rows(command: Any, context: Any) -> Iterator[str]:
    """The table's rows: each argument and option beside its help."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            name, said = (text.replace("|", "\\|") for text in record)
            yield f"| `{name}` | {_prose(said)} |"


def write_pages(_app: Sphinx) -> None:
    pages = {
        API / f"{_slug(title)}.rst": api_page(title, names) for title, names in groups().items()
    }
    for name, command in commands().commands.items():
        pages[COMMANDS / f"{name}.md"] = command_page(command, f"headcount {name}") + "\n"
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.partition(":")[0].lower())


def public_reference(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.TextElement
) -> nodes.Node | None:
    """Types in signatures are named by the module that defines them: link to the public name."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in hc.__all__:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", f"headcount.{name}", node, shown
    )


def plain_docstring(
    _app: Sphinx, _kind: str, _name: str, _found: object, _options: object, lines: list[str]
) -> None:
    """Docstrings as reStructuredText: |τ| is a size, not a substitution, and Args a list.

    napoleon as an extension would also read the text before a colon as the type of a property.
    """
    if "Args:" in lines:
        lines[:] = GoogleDocstring(lines).lines()
    lines[:] = [re.sub(r"\|([^\s|`]+)\|", r"\\|\1\\|", line) for line in lines]


def plain_signature(
    _app: Sphinx, _kind: str, _name: str, _found: object, _options: object, shown: str, gives: str
) -> tuple[str, str] | None:
    """`<factory>` is no Python, and keeps Sphinx from reading the signature around it."""
    return (shown.replace("<factory>", "..."), gives) if "<factory>" in (shown or "") else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("missing-reference", public_reference)
    return {"parallel_read_safe": True}
