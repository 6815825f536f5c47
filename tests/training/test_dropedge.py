"""DropEdge: every step trains without a share of the alive edges, drawn anew; they are deleted, as dead ones are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contract import BACKBONE_ROWS
from samples import tiny_problem

from aceglt.backbones import GCN
from aceglt.backends.reference import Reference
from aceglt.config import Config, Training
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.pruning.structure import build_units
from aceglt.training.dropedge import thinned
from aceglt.training.fit import Fit, fit
from aceglt.training.partitions import Parts

TRAINING = Training(lr=0.1)
DROP = 0.4


def trained(backbone_name: str, epochs: int, drop: float, keep: torch.Tensor | None = None, **options: object) -> Fit:
    """A training of two runs, of the edges in `keep` if that is given."""
    problem = tiny_problem()
    backbone = BACKBONE_ROWS[backbone_name].make(problem)
    full = Masks.full(2, Counts(backbone.prunable.size, problem.graph.num_edges))
    masks = full if keep is None else Masks(full.weights, keep)
    start, key = backbone.init((3, 8)), rng.keys((3, 8), "x")
    training = replace(TRAINING, drop_edge=drop)
    return fit(problem, backbone, start, masks, epochs, training, key, backend=Reference(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "own:Sage"])
def test_a_step_is_that_of_the_graph_without_the_edges_it_leaves_out(
    backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, batch = list[torch.Tensor](), Graph.batch

    def seen(self: Graph, alive: torch.Tensor, *args: object) -> object:
        drawn.append(alive)
        return batch(self, alive, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Graph, "batch", seen)
    thin = trained(backbone, 1, DROP)
    left = next(alive for alive in drawn if len(alive) == 2 and not bool(alive.all()))
    monkeypatch.undo()
    hard = trained(backbone, 1, 0.0, left)
    assert thin.params is not None
    assert hard.params is not None
    torch.testing.assert_close(thin.params.prunable, hard.params.prunable)


def test_edges_are_drawn_anew_at_every_epoch_and_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, batch = list[torch.Tensor](), Graph.batch

    def seen(self: Graph, alive: torch.Tensor, *args: object) -> object:
        drawn.append(alive)
        return batch(self, alive, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Graph, "batch", seen)
    trained("gcn", 3, DROP)
    epochs = [alive for alive in drawn if not bool(alive.all())]
    assert len(epochs) == 3
    runs = {tuple(alive[run].tolist()) for alive in epochs for run in range(2)}
    assert len(runs) == 6


def test_the_share_is_that_of_the_alive_edges_and_the_dead_stay_dead() -> None:
    alive = torch.arange(20_000).view(1, -1) % 2 == 0
    left = thinned(alive, rng.keys([0], "x"), 0.3)
    assert not bool((left & ~alive).any())
    assert float(left.sum() / alive.sum()) == pytest.approx(0.7, abs=0.02)


def test_a_run_ends_alone_as_in_a_batch_and_with_the_graph_in_parts() -> None:
    together = trained("gcn", 3, DROP).params
    alone = trained("gcn", 3, DROP, runs_at_once=1).params
    assert together is not None
    assert alone is not None
    torch.testing.assert_close(together.prunable, alone.prunable)
    parts = trained("gcn", 2, DROP, parts=Parts(2)).params
    assert parts is not None
    assert bool(parts.prunable.isfinite().all())


def test_on_a_cpu_a_run_ends_with_the_same_bits_beside_others() -> None:
    problem = tiny_problem()
    backbone = GCN(problem.x.shape[1], problem.out_features, 24, layers=3).with_whole_units()
    units = build_units(Config(structure="units").pruning, backbone)
    assert units is not None
    alive = torch.rand(2, units.count, generator=torch.Generator().manual_seed(0)) < torch.tensor([[0.3], [0.9]])
    masks = Masks(units.weights(alive), torch.ones(2, problem.graph.num_edges, dtype=torch.bool))
    start, key = backbone.init((3, 8)), rng.keys((3, 8), "x")
    training = replace(TRAINING, drop_edge=DROP)
    together = fit(problem, backbone, start, masks, 3, training, key).params
    for run in (slice(0, 1), slice(1, 2)):
        alone = fit(problem, backbone, start[run], masks[run], 3, training, key[run]).params
        assert together is not None
        assert alone is not None
        assert torch.equal(together.prunable[run], alone.prunable)
