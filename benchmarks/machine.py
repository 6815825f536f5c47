"""What the machine at hand can do: its description, and the rates that floors are made of."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aceglt.backends import kernels
from aceglt.backends.cpu.kernels import compiled_module


def describe(device: str) -> dict[str, Any]:
    """The machine in words and numbers."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else _processor()
    return {
        "device": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": compiled_module() is not None,
        "rates": rates(device),
    }


def rates(device: str) -> dict[str, float]:
    """Bytes read and written per second in a large copy, and operations per second in a product of large matrices, in
    float32 and as trainings compute them: a GPU's are in TF32."""
    source = torch.ones(1 << 26, device=device)  # 256 MiB: no cache holds it
    target = torch.empty_like(source)
    copy = fastest(lambda: target.copy_(source), device, 5)
    side = 2048 if device == "cpu" else 8192
    left, right = torch.rand(2, side, side, device=device)
    product = fastest(lambda: left @ right, device, 5)
    multiply = kernels(torch.device(device).type).matmul
    trained = fastest(lambda: multiply(left, right), device, 5)
    rate = 2 * side**3
    return {
        "bytes_per_s": 2 * source.nbytes / copy, "operations_per_s": rate / product, "products_per_s": rate / trained
    }  # fmt: skip


def fastest(work: Callable[[], Any], device: str, repeat: int) -> float:
    """Seconds of the fastest of some repetitions: other work on the machine only ever adds time."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        synchronise(device)
        times.append(time.perf_counter() - began)
    return min(times)


def synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def peak_mib(device: str) -> int:
    """Of this process so far: on a GPU what torch has allocated there, else what the process has had in memory."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine())
