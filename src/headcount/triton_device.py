"""Whether and where Triton kernels can run."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import torch

from headcount.errors import InputError


def triton_device() -> str:
    """`cuda`, or `cpu` where kernels are interpreted; otherwise an error says what is missing."""
    if find_spec("triton") is None:
        raise InputError(
            "the triton engine needs the package triton; install it with: pip install triton"
        )
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "cpu"
    if not torch.cuda.is_available():
        raise InputError(
            "the triton engine needs a CUDA device and torch sees none; "
            "use --engine native or torch"
        )
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        raise InputError(
            "the triton engine needs a C compiler to launch its kernels; install gcc or clang"
        )
    return "cuda"


def kernels_run_on(device: torch.device) -> bool:
    """Whether Triton compiles kernels for this device: NVIDIA's from the A100's generation on."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != "cuda" or interpreted or torch.version.cuda is None:
        return False
    if torch.cuda.get_device_capability(device)[0] < 8:
        return False
    try:
        return triton_device() == "cuda"
    except InputError:
        return False
