"""`kernels`: the module `aceglt.backends.cuda.kernels` where there are Triton, a C compiler and a GPU; None without."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

kernels: Any = None
if torch.cuda.is_available() and (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
    with suppress(ImportError):  # Triton compiles what launches its kernels, and needs a C compiler for that
        from aceglt.backends.cuda import kernels


def serves(tensor: Tensor) -> bool:
    """Whether the kernels can take this tensor."""
    return kernels is not None and tensor.is_cuda
