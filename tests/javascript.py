"""Run the explorer's scripts under Node, as the page has them."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from headcount.explorer.scripts import joined_script


def run_node(modules: list[str], body: str, given: Any, folder: Any) -> Any:
    """What `body` returns from the modules' names and `given`, all as JSON."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the explorer's scripts are not checked")
    script = folder / "script.js"
    script.write_text(
        f"{joined_script(*modules)}\n"
        "const names = Object.assign({}, ...Object.values(modules));\n"
        f"const work = new Function('given', ...Object.keys(names), {json.dumps(body)});\n"
        f"const answer = work({json.dumps(given)}, ...Object.values(names));\n"
        "process.stdout.write(JSON.stringify(answer, (name, value) =>\n"
        "  ArrayBuffer.isView(value) ? Array.from(value) :\n"
        "  typeof value === 'bigint' ? String(value) : value));\n"
    )
    done = subprocess.run([node, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
