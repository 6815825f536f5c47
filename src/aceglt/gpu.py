"""`kernels`: the module `aceglt.kernels` where there are Triton and a GPU, else None, and torch does its work."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

kernels: Any = None
if torch.cuda.is_available():
    with suppress(ImportError):
        from aceglt import kernels


def serves(tensor: Tensor) -> bool:
    """Whether the kernels can take this tensor."""
    return kernels is not None and tensor.is_cuda
