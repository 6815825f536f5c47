"""The GPU kernels against torch: on a GPU, or with Triton's interpreter where Triton is installed without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from samples import generator, random_masks, tiny_problem
from torch import Tensor

from aceglt.backbones import Backbone, build
from aceglt.backends import Reference
from aceglt.backends.base import ScoreTraining, Start
from aceglt.backends.cuda import Cuda
from aceglt.backends.reference import PlainElements
from aceglt.config import Training
from aceglt.numerics import ops, rng
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.csr import to_csr
from aceglt.numerics.graph import Graph
from aceglt.numerics.kernels import PLAIN
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Soft
from aceglt.training.fit import fit

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:divide by zero"),  # the interpreter's
    *([pytest.mark.gpu] if DEVICE == "cuda" else []),
]

from aceglt.backends.cuda import kernels, sums, units  # noqa: E402
from aceglt.backends.cuda.operations import TritonKernels, norm_relu  # noqa: E402
from aceglt.backends.cuda.units import Draw  # noqa: E402


class Interpreted(Cuda):
    """Without recorded epochs, which only a GPU has."""

    def record(self, epoch: Callable[[], None], backbone: Backbone, fixed: bool) -> Callable[[], None]:
        return super().record(epoch, backbone, fixed) if DEVICE == "cuda" else epoch


def near(mine: Tensor | None, theirs: Tensor) -> None:
    assert mine is not None
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed)).to(DEVICE)


def graph_batch(directed: bool = False, weighted: bool = False) -> GraphBatch:
    """Two runs with other alive edges, and a node with many neighbours."""
    hub = torch.stack([torch.zeros(79, dtype=torch.int64), torch.arange(1, 80)])
    arcs = torch.cat([torch.randint(80, (2, 90), generator=generator(0)), hub], dim=1)
    graph = Graph.from_edge_index(arcs, 80, directed)
    if weighted:
        graph = replace(graph, edge_weight=torch.rand(graph.num_edges, generator=generator(3)) - 0.3)
    graph = graph.to(DEVICE)
    alive = torch.rand(2, graph.num_edges, generator=generator(1)) < 0.95
    return graph.batch(alive.to(DEVICE), True, TritonKernels(tensor_cores=False))


@pytest.mark.parametrize("width", [6, 40, 200])
@pytest.mark.parametrize("relu", [False, True])
def test_sums_along_arcs(width: int, relu: bool) -> None:
    batch, dense = graph_batch(), drawn(2, 80, width)
    values = drawn(batch.num_arcs, seed=1)
    expected = batch.csr(values).to_dense() @ dense.view(-1, width)
    near(TritonKernels().along(batch, values, dense, relu).view(-1, width), expected.relu() if relu else expected)


@pytest.mark.parametrize("width", [6, 200])
def test_one_sparse_matrix_for_all_runs(width: int) -> None:
    matrix, dense = drawn(9, 7) * (drawn(9, 7, seed=2) > 0.3), drawn(3, 7, width, seed=1)
    near(TritonKernels().each_run(to_csr(matrix), dense), matrix @ dense)


@pytest.mark.parametrize("width", [6, 72])
@pytest.mark.parametrize("directed", [False, True])
def test_gradients_of_sums_along_arcs(width: int, directed: bool) -> None:
    batch = graph_batch(directed)
    values, dense, grad = drawn(batch.num_arcs), drawn(160, width, seed=1), drawn(160, width, seed=2)
    to_values, to_dense = sums.spread(batch, values, grad, dense)
    near(to_values, (grad[batch.row] * dense[batch.col]).sum(dim=1))
    near(to_dense, batch.csr(values).to_dense().t() @ grad)


@pytest.mark.parametrize("weighted", [False, True])
def test_normalisation(weighted: bool) -> None:
    batch = graph_batch(weighted=weighted)
    values, grad = drawn(2, batch.num_edges).requires_grad_(), drawn(batch.num_arcs, seed=1)
    plain = replace(batch, kernels=PLAIN)
    expected = ops.normalise(plain, values)
    made = ops.normalise(batch, values)
    near(made, expected)
    near(*(torch.autograd.grad(each, values, grad)[0] for each in (made, expected)))


@pytest.mark.parametrize("nodes", [None, (5, 0, 9, 2, 7)])
def test_a_narrow_layer_with_dropout(nodes: tuple[int, ...] | None) -> None:
    rows = None if nodes is None else torch.tensor(nodes, device=DEVICE)
    h, weight, grad = drawn(2, 5, 24).relu(), drawn(2, 24, 3, seed=1), drawn(2, 5, 3, seed=2)
    key, narrow = rng.keys((0, 1), "narrow", device=DEVICE), weight.transpose(1, 2).contiguous()
    keep = rng.keep_mask(key.cpu(), 24, 0.4, torch.float32, torch.arange(5) if nodes is None else torch.tensor(nodes))
    left = h * keep.to(DEVICE) / 0.6
    out, mask = units.narrow_layer(h, narrow, Draw(key, 0.4, 24, rows))
    near(out, left @ weight)
    to_weight, to_h = units.narrow_gradients(h, narrow, grad, mask, 1 / 0.6)
    near(to_weight, left.transpose(1, 2) @ grad)
    near(to_h, (grad @ narrow) * (left > 0) / 0.6)
    near(kernels.drop(key, h, rows, 0.4), left)


@pytest.mark.parametrize("drop", [None, 0.3])
@pytest.mark.parametrize("biased", [False, True])
def test_norm_relu_and_dropout(drop: float | None, biased: bool) -> None:
    h, bias = drawn(2, 37, 20), drawn(2, 1, 20, seed=1)
    scale, shift = drawn(2, 1, 40, seed=2).split(20, dim=2)  # parts of one tensor, as parameters are
    leaves = [part.requires_grad_() for part in (h, scale, shift, *([bias] if biased else []))]
    key, keep = rng.keys((0, 1), "norm", device=DEVICE), torch.ones(2, 37, 20, device=DEVICE)
    if drop is not None:
        drawn_mask = rng.keep_mask(key.cpu(), 37 * 20, drop, torch.float32)
        keep = drawn_mask.view(keep.shape).to(DEVICE) / (1 - drop)
    expected = ops.layer_norm(h + bias if biased else h, scale, shift).relu() * keep
    draw = None if drop is None else Draw(key, drop, 20, None)
    made = norm_relu(h, (bias if biased else None, scale, shift), draw)
    near(made, expected)
    grad = drawn(2, 37, 20, seed=4)
    for mine, theirs in zip(*(torch.autograd.grad(each, leaves, grad) for each in (made, expected)), strict=True):
        near(mine, theirs)


def test_cross_entropy_to_soft_targets() -> None:
    outputs, targets = (3 * drawn(2, 300, 7)).requires_grad_(), drawn(2, 300, 7, seed=1).softmax(dim=-1)
    losses = [by.soft_cross_entropy(outputs, targets) for by in (TritonKernels(), PLAIN)]
    near(*losses)
    near(*(torch.autograd.grad((each * drawn(2, seed=2)).sum(), outputs)[0] for each in losses))


@pytest.mark.parametrize("value", [0, 1 << 20, torch.tensor(7)])
def test_keys_are_folded_as_torch_does(value: int | Tensor) -> None:
    key = rng.keys((0, 1, 2), "fold")
    mine = kernels.fold(key.to(DEVICE), value.to(DEVICE) if isinstance(value, Tensor) else value)
    assert torch.equal(mine.cpu(), rng.fold(key, value))


@pytest.mark.parametrize("width", [1, 6, 200])
def test_sddmm(width: int) -> None:
    batch = graph_batch()
    left, right = drawn(160, width), drawn(160, width, seed=1)
    near(sums.sddmm(batch.rowptr, batch.col32, left, right), (left[batch.row] * right[batch.col]).sum(dim=1))


@pytest.mark.parametrize("width", [8, 6])
def test_keep_draws_what_torch_draws(width: int) -> None:
    key, rows = rng.keys((0, 1), "keep"), torch.tensor([5, 0, 9])
    whole = torch.empty(2, 10 * width, device=DEVICE)
    kernels.keep(key.to(DEVICE), whole, None, 0.4)
    expected = rng.keep_mask(key, 10 * width, 0.4, torch.float32)
    assert torch.equal(whole.cpu(), expected)
    some = torch.empty(2, 3, width, device=DEVICE)
    kernels.keep(key.to(DEVICE), some, rows.to(DEVICE), 0.4)
    assert torch.equal(some.cpu(), expected.view(2, 10, width)[:, rows])


@pytest.mark.parametrize("scoring", [None, "scores", "clamped", "weights alone"])
def test_the_fused_update_trains_as_torch_does(scoring: str | None) -> None:
    problem = tiny_problem().to(DEVICE)
    gin = build("gin", problem.x.shape[1], problem.out_features, 8)
    total = Counts(gin.prunable.size, problem.graph.num_edges)
    masks = random_masks(total, Counts(total.weights // 2, total.edges // 2), (0, 1)).to(DEVICE)
    how = None
    if scoring is not None:
        how = ScoreTraining(0.01, 0.02, True, scoring == "clamped", "best", weights=scoring != "weights alone")
    start, key = gin.init((0, 1), DEVICE), rng.keys((0, 1), "kernels", device=DEVICE)
    ours, theirs = (
        fit(problem, gin, start, masks, 6, Training(lr=0.05, weight_decay=0.01), key, scoring=how, backend=backend)
        for backend in (Interpreted(), Reference())
    )
    torch.testing.assert_close(ours.val, theirs.val)
    assert ours.epoch.tolist() == theirs.epoch.tolist()
    for one, other in ((ours.params, theirs.params), (ours.scores, theirs.scores)):
        assert (one is None) == (other is None)
        for part in vars(one) if one is not None else ():
            torch.testing.assert_close(getattr(one, part), getattr(other, part), rtol=1e-4, atol=1e-6)


def test_elements_with_a_rule_of_their_own_are_trained_by_the_kernels_and_not_recorded() -> None:
    problem = tiny_problem().to(DEVICE)
    gcn = build("gcn", problem.x.shape[1], problem.out_features, 8)
    masks = Masks.full(2, Counts(gcn.prunable.size, problem.graph.num_edges), DEVICE)
    start, key = gcn.init((0, 1), DEVICE), rng.keys((0, 1), "kernels", device=DEVICE)
    how, training = ScoreTraining(0.01, 0.02, True, False, "last", weights=False), Training(lr=0.05, weight_decay=0.01)

    def made(backbone: Backbone, begun: Start, runs: slice) -> PlainElements:
        return PlainElements(backbone, begun)

    ours, theirs = (
        fit(problem, gcn, start, masks, 4, training, key, scoring=how, backend=backend, elements=made)
        for backend in (Interpreted(tensor_cores=False), Reference())
    )
    assert ours.scores is not None
    assert theirs.scores is not None
    near(ours.scores.edges, theirs.scores.edges)

    def epoch() -> None: ...

    every = Cuda()
    own = every.able_to(own_elements=True, changing_arcs=False)
    assert own.name == "cuda"
    assert own.record(epoch, gcn, True) is epoch
    assert every.record(epoch, gcn, True) is not epoch  # as before


def test_features_may_be_stored_by_columns() -> None:
    """As those of a data frame are."""
    problem = tiny_problem().to(DEVICE)
    by_column = replace(problem, x=problem.x.t().contiguous().t())
    gcn = build("gcn", problem.x.shape[1], problem.out_features, 4)
    masks = Masks.full(2, Counts(gcn.prunable.size, problem.graph.num_edges), DEVICE)
    start, key = gcn.init((0, 1), DEVICE), rng.keys((0, 1), "kernels", device=DEVICE)
    soft = Soft(drawn(2, 30, problem.out_features).softmax(dim=-1), 1.0)  # so that all nodes are computed
    how, training = ScoreTraining(0.01, 0.02, True, False, "last"), Training(lr=0.05, weight_decay=0.01)
    ours, theirs = (
        fit(given, gcn, start, masks, 2, training, key, scoring=how, soft=soft, backend=backend)
        for given, backend in ((by_column, Interpreted(tensor_cores=False)), (problem, Reference()))
    )
    assert ours.scores is not None
    assert theirs.scores is not None
    near(ours.scores.edges, theirs.scores.edges)
    near(ours.scores.weights, theirs.scores.weights)
