"""Scripts of this repository, outside any package, as modules."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def script(path: str) -> ModuleType:
    """A file as a module, by its path in the repository: `script("tools/make_relations.py")`."""
    name = Path(path).stem
    spec = spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module
