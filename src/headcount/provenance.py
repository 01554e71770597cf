"""How a result was made: the machine, the commit of the source, and the software's versions."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> str:
    """The processor, its cores, and the GPU where there is one."""
    import torch

    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        name = next(models, name)
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name}, {cores()} cores{gpu}"


@cache  # the source that runs was read when it started; a sweep asks after every run
def commit() -> str | None:
    """The commit of the running source, with "+" if files changed; None outside a checkout."""
    git, here = shutil.which("git"), Path(__file__).parent
    if not git:
        return None

    def ask(*words: str) -> str:
        done = subprocess.run(
            [git, "-C", str(here), *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        if not ask("ls-files", Path(__file__).name):  # an installed copy in another repository
            return None
        changed = "+" if ask("status", "--porcelain", "--untracked-files=no") else ""
        return ask("rev-parse", "--short", "HEAD") + changed
    except (subprocess.CalledProcessError, OSError):
        return None


@cache
def versions() -> dict[str, str]:
    """The software that a result was made with."""
    packages = ("headcount", "torch", "numpy")
    return {"python": platform.python_version()} | {
        name: package_version(name) or "unknown" for name in packages
    }


def package_version(package: str) -> str | None:
    """The installed version; None where the package runs from its source folder."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
