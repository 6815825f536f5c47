"""How fast a training is computed, never what: one protocol, chosen once per search.

`reference` is plain torch and the definition; `cpu` and `cuda` are held to it by tests/backends/test_agreement.py.
"""

from __future__ import annotations

from functools import cache

import torch

from aceglt.backends import cuda
from aceglt.backends.cpu import Cpu
from aceglt.backends.reference import Reference
from aceglt.numerics.kernels import Kernels

Backend = Reference
"""The reference, or a subclass of it that computes the same faster."""

__all__ = ["Backend", "Cpu", "Reference", "choose", "kernels"]


def choose(device: torch.device) -> Backend:
    """The fastest backend for a device."""
    if device.type == "cpu":
        return Cpu()
    return cuda.Cuda() if cuda.available() else Reference()


@cache
def kernels(device: str) -> Kernels:
    """The fastest kernels for a type of device, for products outside of trainings."""
    return choose(torch.device(device)).kernels
