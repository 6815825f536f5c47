"""Every backend computes what the reference does for networks that are not of two plain layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

import pytest
import torch
from test_agreement import (
    MODES,
    RUNS,
    TASKS,
    TOLERANCE,
    Case,
    close,
    expected,
    passes,
    sparse_data,
    trained,
)

from aceglt.backbones import Backbone, build
from aceglt.backends import Backend, Cpu, Reference
from aceglt.backends.cpu.kernels import CompiledKernels
from aceglt.backends.cuda import Cuda
from aceglt.backends.fields import Fields
from aceglt.backends.layers import ordered
from aceglt.numerics.kernels import PLAIN
from aceglt.problems import Problem

DEEP: dict[str, dict[str, Any]] = {
    "gcn": {"layers": 3, "norm": "layer", "output": "linear", "bias": True},
    "gcn, dense features": {"hidden": 128, "layers": 3, "norm": "layer", "skip": "linear", "bias": True},
    "gcn, input dropout": {"layers": 2, "input_dropout": 0.2, "output": "linear"},
    "sage": {"hidden": 48, "layers": 3, "skip": "identity", "jumping": "cat"},
    "sage, dense features": {"hidden": 128, "layers": 1, "output": "linear"},
    "gin": {"layers": 3, "norm": "batch", "skip": "linear"},
    "gat": {"hidden": 8, "heads": 2, "layers": 3, "norm": "layer", "output": "linear"},
    "gat, blocks": {"hidden": 8, "heads": 2, "layers": 3, "dropout": 0.3, "input_dropout": 0.0},
}
AFTER_TRAINING = {torch.float32: 1e-2, torch.bfloat16: 2e-1}
ROWS = [
    *(("node", sparsity, torch.float32) for sparsity in ("nothing pruned", "90 %", "units dead", "a matrix dead")),
    ("several labels", "50 %", torch.float32),
    ("inductive", "90 %", torch.float32),
    ("link", "nothing pruned", torch.float32),
    ("infoclust", "50 %", torch.float32),
    ("node", "50 %", torch.bfloat16),
]


def factory(name: str) -> Callable[[Problem], Backbone]:
    options = {"hidden": 48, **DEEP[name]}
    return lambda p: build(name.split(",")[0], p.x.shape[1], p.out_features, **options)


@cache
def dense_problem(task: str, device: str) -> Problem:
    """With features for which sums along arcs come before the product with the weight."""
    data = sparse_data(task == "several labels")
    data.x = data.x + 0.1
    return Problem.from_data(data, "tiny", **TASKS[task]).to(device)


@dataclass(frozen=True)
class DeepCase(Case):
    @property
    def mode(self) -> str:
        place = sum(map(ord, f"{self.backbone}{self.task}{self.sparsity}{self.precision}"))
        mode = MODES[place % len(MODES)]
        return "scores" if mode == "teacher" and self.task == "infoclust" else mode

    @property
    def problem(self) -> Problem:
        return dense_problem(self.task, self.device) if "dense" in self.backbone else super().problem

    @cached_property
    def network(self) -> Backbone:
        network = factory(self.backbone)(self.problem)
        return network if self.precision == torch.float32 else network.computing_in(self.precision)


def check(backend: Backend, case: DeepCase) -> None:
    """Passes as closely as ever; of a training, Adam makes full steps where rounding decides a gradient's sign."""
    of_passes, of_training = expected(case)
    for mine, theirs in zip(passes(backend, case), of_passes, strict=True):
        close(mine, theirs, TOLERANCE[case.precision])
    for name, part in trained(backend, case).items():
        assert float((part - of_training[name]).norm()) <= AFTER_TRAINING[case.precision] * float(part.norm())


each_network = pytest.mark.parametrize("name", DEEP)
each_row = pytest.mark.parametrize(("task", "sparsity", "precision"), ROWS, ids=str)


def table() -> list[Any]:
    """Every network with every row; half of them quickly, by turns."""
    pairs = product(enumerate(DEEP), enumerate(ROWS))
    return [pytest.param(name, *row, marks=pytest.mark.slow if (n + r) % 2 else ()) for (n, name), (r, row) in pairs]


@pytest.mark.parametrize(("name", "task", "sparsity", "precision"), table(), ids=str)
def test_the_cpu_computes_what_the_reference_does(name: str, task: str, sparsity: str, precision: torch.dtype) -> None:
    pytest.importorskip("numba")
    check(Cpu(CompiledKernels(worth=0)), DeepCase(name, task, precision, sparsity, seeds=RUNS[task]))


class BatchedInPlainTorch(Cuda):
    """What a GPU computes for all runs at once, but for its kernels."""

    def __init__(self) -> None:
        self.kernels, self._fields = PLAIN, Fields(PLAIN)

    elements, record = Reference.elements, Reference.record

    def network(self, backbone: Backbone, fixed: bool = False) -> Backbone:
        return ordered(backbone, fixed)


@each_network
@pytest.mark.parametrize(("task", "sparsity"), [("node", "nothing pruned"), ("node", "50 %"), ("inductive", "50 %")])
def test_runs_of_a_batch_are_computed_as_the_reference_does(name: str, task: str, sparsity: str) -> None:
    check(BatchedInPlainTorch(), DeepCase(name, task, torch.float32, sparsity))


@pytest.mark.gpu
@each_network
@each_row
def test_a_gpu_computes_what_the_reference_does(name: str, task: str, sparsity: str, precision: torch.dtype) -> None:
    check(Cuda(tensor_cores=False), DeepCase(name, task, precision, sparsity, "cuda"))
