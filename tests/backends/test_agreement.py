"""Every backend computes what the reference does: forward, gradients and a whole training, for every backbone × task ×
precision × sparsity. A new backbone or task joins by adding a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from samples import generator, random_masks
from torch import Tensor
from torch_geometric.nn import SAGEConv

from aceglt.backbones import GAT, GCN, GIN, Backbone, Dropout, ResGCN
from aceglt.backbones.base import Params
from aceglt.backbones.module import ModuleBackbone
from aceglt.backends import Backend, Cpu, Reference
from aceglt.backends.base import ScoreTraining
from aceglt.backends.cpu.kernels import CompiledKernels
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems import Problem
from aceglt.problems.base import Soft
from aceglt.training.fit import fit
from aceglt.training.scores import initial_scores

SEEDS = (3, 8)
MODES = ("weights", "scores", "teacher")
EPOCHS = 5
HIDDEN = 48
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
TF32 = 2e-3
"""Of passes whose dense products are on tensor cores."""
SCORING = ScoreTraining(lambda_edges=1e-3, lambda_weights=1e-3, decay=True, clamp=False, epoch="last")


class OwnSage(torch.nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(in_features, 8), SAGEConv(8, out_features)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        result: Tensor = self.second(torch.relu(self.first(x, edge_index)), edge_index)
        return result


BACKBONES: dict[str, Callable[[Problem], Backbone]] = {
    "gcn": lambda p: GCN(p.x.shape[1], p.out_features, HIDDEN),
    "gin": lambda p: GIN(p.x.shape[1], p.out_features, HIDDEN),
    "gat": lambda p: GAT(p.x.shape[1], p.out_features, 8, heads=2),
    "resgcn": lambda p: ResGCN(p.x.shape[1], p.out_features, 8, layers=2),
    "own": lambda p: ModuleBackbone(OwnSage, p.graph, p.x, p.out_features),
}
TASKS: dict[str, dict[str, Any]] = {
    "node": {"task": "node"},
    "several labels": {"task": "node"},
    "inductive": {"task": "inductive"},
    "link": {"task": "link", "embedding": 6},
    "infoclust": {"task": "link", "embedding": 6, "objective": "infoclust"},
}
SPARSITIES = ("nothing pruned", "50 %", "90 %", "99 %", "units dead", "a matrix dead", "no feature read")


def sparse_data(several: bool = False) -> Any:
    """Three classes, sparse features, nodes outside the split, so that every task has something to learn from."""
    g, nodes, features = generator(5), 72, 60
    y = torch.arange(nodes) % 3
    likely = torch.where(y[:, None] == y[None, :], 0.12, 0.02)
    edge_index = (torch.rand(nodes, nodes, generator=g) < likely).triu(1).nonzero().t().contiguous()
    x = torch.rand(nodes, features, generator=g) * (torch.rand(nodes, features, generator=g) < 0.1)
    x[torch.arange(nodes), y * 20 + torch.arange(nodes) % 5] = 1.0
    part = torch.arange(nodes) // 12
    labels = torch.stack([y == 0, y != 1], dim=1).float() if several else y
    masks = {"train_mask": part == 0, "val_mask": part == 1, "test_mask": part == 2}
    return SimpleNamespace(x=x, edge_index=edge_index, y=labels, **masks)


@cache
def problem_of(task: str, device: str) -> Problem:
    return Problem.from_data(sparse_data(task == "several labels"), "tiny", **TASKS[task]).to(device)


def rising(problem: Problem) -> Problem:
    """The same problem with a metric that is better after every epoch, by 1 and something that depends smoothly on the
    outputs: the last epoch is kept, and validation passes can be compared."""
    calls, kind = torch.zeros((), dtype=torch.float64, device=problem.device), type(problem)

    class Rising(kind):  # type: ignore[misc, valid-type]
        def measure(self, outputs: Tensor, split: str) -> Tensor:
            nodes = problem.reads("val")
            read = outputs if nodes is None else outputs.index_select(1, nodes)
            calls.add_(1)
            return calls + 0.4 * read.double().tanh().mean(dim=(1, 2))

    own: Problem = Rising(**{field.name: getattr(problem, field.name) for field in fields(problem)})
    return own


@dataclass(frozen=True)
class Case:
    """A row of the table, for some runs on a device."""

    backbone: str
    task: str
    precision: torch.dtype
    sparsity: str
    device: str = "cpu"
    seeds: tuple[int, ...] = SEEDS

    @property
    def mode(self) -> str:
        """What is trained: by turns, so that every backbone × task and every backbone × sparsity meets every mode."""
        places = list(BACKBONES).index(self.backbone), list(TASKS).index(self.task), SPARSITIES.index(self.sparsity)
        mode = MODES[(sum(places) + (self.precision == torch.bfloat16)) % len(MODES)]
        return "scores" if mode == "teacher" and self.task == "infoclust" else mode  # there is nothing to teach

    @property
    def problem(self) -> Problem:
        return problem_of(self.task, self.device)

    @cached_property
    def network(self) -> Backbone:
        network = BACKBONES[self.backbone](self.problem)
        return network if self.precision == torch.float32 else network.computing_in(self.precision)

    @cached_property
    def masks(self) -> Masks:
        return masks_of(self.network, self.problem, self.sparsity, self.seeds).to(self.device)


def masks_of(backbone: Backbone, problem: Problem, sparsity: str, seeds: Sequence[int]) -> Masks:
    total = Counts(backbone.prunable.size, problem.graph.num_edges)
    share = {"50 %": 0.5, "90 %": 0.1, "99 %": 0.01}.get(sparsity, 1.0)
    keep = Counts(max(1, round(share * total.weights)), max(1, round(max(share, 0.5) * total.edges)))
    masks = random_masks(total, keep, seeds)
    parts = backbone.prunable.split(masks.weights)  # views
    first, *_, last = parts.values()
    if sparsity == "units dead":
        last[:, : last.shape[1] * 3 // 4] = False
        first[:, :, ::2] = False
    if sparsity == "a matrix dead":
        last[:] = False
    if sparsity == "no feature read":
        first[:] = False
    return masks


def close(mine: Tensor, reference: Tensor, tolerance: float, noise: float = 0.0) -> None:
    """The difference's norm, relative to the reference's, or to the noise of the reference itself."""
    assert mine.shape == reference.shape
    assert bool(mine.isfinite().all())
    allowed = tolerance * max(float(reference.norm()), 1e-6)
    assert float((mine - reference).norm()) <= max(allowed, 2 * noise)


def passes(backend: Backend, case: Case) -> tuple[Tensor, Tensor]:
    """Outputs with dropout, and their gradients in some direction."""
    problem, backbone, masks = case.problem, case.network, case.masks
    network, key = backend.network(backbone), rng.keys(case.seeds, "dropout", device=case.device)
    params, scores = backbone.init(case.seeds, case.device), initial_scores(key, masks)
    flat = params.prunable * masks.weights
    weights = {name: part.clone().requires_grad_() for name, part in backbone.prunable.split(flat).items()}
    values = scores.edges.clone().requires_grad_()
    graph = problem.graph.batch(masks.edges, backbone.self_loops, backend.kernels)
    everything = {**weights, **backbone.other.split(params.other)}
    state = network.begin(everything, graph, values, backend.features(problem.features))
    outputs = network.end(everything, graph, state, Dropout(key, backend.kernels))
    direction = torch.rand(outputs.shape, generator=generator(1)).to(outputs.device)
    grads = torch.autograd.grad((outputs * direction).sum(), [*weights.values(), values], materialize_grads=True)
    return outputs.detach(), torch.cat([grad.flatten() for grad in grads])


def trained(backend: Backend, case: Case) -> dict[str, Tensor]:
    """What a whole training has changed, by name: beside the values themselves, five epochs are little."""
    problem, backbone, soft = case.problem, case.network, None
    start, key = backbone.init(case.seeds, case.device), rng.keys(case.seeds, "fit", device=case.device)
    if case.mode == "teacher":
        shape = len(case.seeds), problem.graph.num_nodes, problem.out_features
        soft = Soft(torch.rand(shape, generator=generator(2)).softmax(dim=-1).to(case.device), 2.0)
    found = fit(
        rising(problem),
        backbone,
        start,
        case.masks,
        EPOCHS,
        Training(lr=1e-3, weight_decay=5e-4),
        key,
        scoring=None if case.mode == "weights" else SCORING,
        soft=soft,
        backend=backend,
    )
    assert found.epoch.tolist() == [EPOCHS] * len(case.seeds)
    begun = (
        Params(start.prunable * case.masks.weights, start.other) if found.params else initial_scores(key, case.masks)
    )
    changes = {name: part - getattr(begun, name) for name, part in vars(found.params or found.scores).items()}
    return {"val": 1 + found.val - found.val.round(), **changes}


@cache
def expected(case: Case) -> tuple[tuple[Tensor, Tensor], dict[str, Tensor]]:
    return passes(Reference(), case), trained(Reference(), case)


def check(backend: Backend, case: Case) -> None:
    of_passes, of_training = expected(case)
    for mine, theirs in zip(passes(backend, case), of_passes, strict=True):
        close(mine, theirs, TOLERANCE[case.precision])
    found = trained(backend, case)
    assert found.keys() == of_training.keys()
    # A GPU runs an own module by the reference's own code, with sums in any order: no backend is nearer than that.
    by_chance = 3 if case.device == "cuda" and case.backbone == "own" else 0
    again = [trained(Reference(), case) for _ in range(by_chance)]
    for name, part in found.items():
        noise = max((float((other[name] - of_training[name]).norm()) for other in again), default=0.0)
        close(part, of_training[name], TOLERANCE[case.precision], noise)
    kept = found["prunable" if case.mode == "weights" else "weights"]
    assert not bool(kept[~case.masks.weights].any())


each_backbone = pytest.mark.parametrize("backbone", BACKBONES)
each_task = pytest.mark.parametrize("task", TASKS)
each_precision = pytest.mark.parametrize("precision", TOLERANCE, ids=str)
each_sparsity = pytest.mark.parametrize("sparsity", SPARSITIES)


RUNS = {task: SEEDS if task == "node" else SEEDS[:1] for task in TASKS}
"""On a CPU each run is trained by itself."""


def by_turns(*columns: Iterable[Any]) -> list[Any]:
    """Every row; half of them quickly, such that all columns but one, whichever, meet in every way."""
    rows = [tuple(zip(*row, strict=True)) for row in product(*map(enumerate, columns))]
    return [pytest.param(*row, marks=pytest.mark.slow if sum(places) % 2 else ()) for places, row in rows]


TABLE = by_turns(BACKBONES, TASKS, TOLERANCE, SPARSITIES)
WITHOUT_NUMBA = by_turns(BACKBONES, ("node", "infoclust"), SPARSITIES)
"""On receptive fields, and with parameters of the objective."""


@pytest.mark.parametrize(("backbone", "task", "precision", "sparsity"), TABLE, ids=str)
def test_the_cpu_computes_what_the_reference_does(
    backbone: str, task: str, precision: torch.dtype, sparsity: str
) -> None:
    pytest.importorskip("numba")
    check(Cpu(CompiledKernels(worth=0)), Case(backbone, task, precision, sparsity, seeds=RUNS[task]))


@pytest.mark.parametrize(("backbone", "task", "sparsity"), WITHOUT_NUMBA)
def test_without_numba_the_cpu_computes_what_the_reference_does(backbone: str, task: str, sparsity: str) -> None:
    check(Cpu(CompiledKernels(numba=False)), Case(backbone, task, torch.float32, sparsity, seeds=RUNS[task]))


@pytest.mark.gpu
@each_backbone
@each_task
@each_precision
@each_sparsity
def test_a_gpu_computes_what_the_reference_does(
    backbone: str, task: str, precision: torch.dtype, sparsity: str
) -> None:
    from aceglt.backends.cuda import Cuda

    check(Cuda(tensor_cores=False), Case(backbone, task, precision, sparsity, "cuda"))


@pytest.mark.gpu
@each_backbone
@each_sparsity
def test_tensor_cores_compute_nearly_what_the_reference_does(backbone: str, sparsity: str) -> None:
    from aceglt.backends.cuda import Cuda

    case = Case(backbone, "node", torch.float32, sparsity, "cuda")
    for mine, theirs in zip(passes(Cuda(), case), expected(case)[0], strict=True):
        close(mine, theirs, TF32)
