"""Where a search ran, for its environment.json: versions, machine, memory."""

from __future__ import annotations

import platform
import resource
import sys
import time
from typing import Any

import torch

from aceglt.version import __version__


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and machine, for the record."""
    return {
        "started": time.strftime("%Y-%m-%d %H:%M"),
        "aceglt": __version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def peak_memory(device: torch.device) -> int:
    """Bytes: the most that tensors took on a GPU, or the process in main memory, up to now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in kilobytes
