"""Run the explorer's scripts under Node, as the page has them."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
from functools import cache
from typing import Any

import pytest

from headcount.explorer.scripts import joined_script

# One process answers all questions, a script per line: Node takes a tenth of a second to start.
_SERVER = """
const lines = require("readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  let said;
  try {
    said = { answer: new Function(JSON.parse(line))() };
  } catch (error) {
    said = { error: error.stack };
  }
  process.stdout.write(JSON.stringify(said, (name, value) =>
    ArrayBuffer.isView(value) ? Array.from(value) :
    typeof value === "bigint" ? String(value) : value) + "\\n");
});
"""


def run_node(modules: list[str], body: str, given: Any) -> Any:
    """What `body` returns from the modules' names and `given`, all as JSON."""
    script = (
        f"{joined_script(*modules)}\n"
        "const names = Object.assign({}, ...Object.values(modules));\n"
        f"const work = new Function('given', ...Object.keys(names), {json.dumps(body)});\n"
        f"return work({json.dumps(given)}, ...Object.values(names));\n"
    )
    node = _node()
    assert node.stdin
    assert node.stdout
    node.stdin.write(json.dumps(script) + "\n")
    node.stdin.flush()
    said = json.loads(node.stdout.readline())
    assert "error" not in said, said["error"]
    return said.get("answer")


@cache
def _node() -> subprocess.Popen[str]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the explorer's scripts are not checked")
    process = subprocess.Popen(
        [node, "-e", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )
    atexit.register(process.communicate)  # which ends its input
    return process
