"""The GPU kernels against torch: on a GPU, or with Triton's interpreter where Triton is installed without one."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from samples import generator, random_masks, tiny_problem

from aceglt.backbones import Backbone, build
from aceglt.backends import Reference
from aceglt.backends.base import ScoreTraining
from aceglt.backends.cuda import Cuda
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.csr import to_csr
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts
from aceglt.training.fit import fit

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the interpreter's
    *([pytest.mark.gpu] if DEVICE == "cuda" else []),
]

from aceglt.backends.cuda import kernels  # noqa: E402  (the interpreter is chosen at import)


class Interpreted(Cuda):
    """Without recorded epochs, which only a GPU has."""

    def record(self, epoch: Callable[[], None], backbone: Backbone, fixed: bool) -> Callable[[], None]:
        return super().record(epoch, backbone, fixed) if DEVICE == "cuda" else epoch


@pytest.mark.parametrize("width", [1, 6, 40, 200])
@pytest.mark.parametrize("shared", [False, True])
def test_spmm(width: int, shared: bool) -> None:
    runs, rows, columns = 2, 9, 7
    matrix = torch.rand(rows if shared else runs * rows, columns if shared else runs * columns, generator=generator(0))
    matrix = (matrix * (matrix > 0.6)).to(DEVICE)
    dense = torch.rand(runs * columns, width, generator=generator(1)).to(DEVICE)
    out = dense.new_empty(runs * rows, width)
    kernels.spmm(to_csr(matrix), dense, out, shared)
    expected = matrix @ dense.view(runs, columns, width) if shared else matrix @ dense
    torch.testing.assert_close(out, expected.reshape(-1, width))


@pytest.mark.parametrize("width", [1, 6, 200])
def test_sddmm(width: int) -> None:
    graph = Graph.from_edge_index(torch.randint(12, (2, 60), generator=generator(0)), 12).to(DEVICE)
    block = graph.batch(torch.ones(2, graph.num_edges, dtype=torch.bool, device=DEVICE), True)
    left, right = (torch.rand(24, width, generator=generator(s)).to(DEVICE) for s in (1, 2))
    out = kernels.sddmm(block.rowptr, block.col32, left, right)
    torch.testing.assert_close(out, (left[block.row] * right[block.col]).sum(dim=1))


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
