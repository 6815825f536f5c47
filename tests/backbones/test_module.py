"""The user's own model as a backbone."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from own_models import LAYERS, Deep, NoPyG, Normed, Stack, Weighted, gin
from samples import random_graph, random_masks, tiny_problem
from torch import Tensor
from torch.nn import Linear, Module
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, models

from aceglt.backbones import GAT, GCN, GIN, Backbone, Dropout, Params
from aceglt.backbones.module import ModuleBackbone
from aceglt.config import Training
from aceglt.errors import ConfigError
from aceglt.numerics import rng
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph
from aceglt.numerics.masks import Counts, Masks
from aceglt.searches.levels import inference_macs
from aceglt.training import scores as initial
from aceglt.training.fit import Fit, ScoreTraining, fit

NODES, FEATURES, CLASSES = 12, 5, 3
GRAPH = random_graph()
X = torch.randn(NODES, FEATURES, generator=torch.Generator().manual_seed(1))
SCORING = ScoreTraining(1e-3, 1e-3, decay=True, clamp=False, epoch="last")
READY = {
    "GCN": lambda: models.GCN(FEATURES, 6, 2, CLASSES),
    "GraphSAGE": lambda: models.GraphSAGE(FEATURES, 6, 2, CLASSES, norm="batch_norm"),
    "GAT": lambda: models.GAT(FEATURES, 6, 2, CLASSES, heads=2),
    "GIN": lambda: models.GIN(FEATURES, 6, 2, CLASSES),
    "lazy": lambda: models.GCN(-1, 6, 2, CLASSES),
    "lazy weighted": lambda: LazyWeighted(),
}


class LazyWeighted(Weighted):
    def __init__(self) -> None:
        super().__init__(GCNConv, (-1, 6, CLASSES))

    def reset_parameters(self) -> None:
        self.first.reset_parameters()
        self.second.reset_parameters()


def wrap(model: Any, graph: Graph = GRAPH, x: Tensor = X, **options: Any) -> ModuleBackbone:
    return ModuleBackbone(model, graph, x, CLASSES, **options)


def problem_backbone(model: Any) -> tuple[Any, ModuleBackbone]:
    problem = tiny_problem()
    return problem, ModuleBackbone(model, problem.graph, problem.x, problem.num_classes)


def outputs(backbone: Backbone, params: Params, values: Tensor, x: Tensor = X, graph: Graph = GRAPH) -> Tensor:
    """With every edge alive."""
    batch = graph.batch(torch.ones(values.shape, dtype=torch.bool), backbone.self_loops)
    return backbone.apply(backbone.weights(params), batch, values, Features(x))


def called(model: Callable[[], Module], backbone: ModuleBackbone, params: Params, arcs: Tensor) -> Tensor:
    """What the plain model says, with the parameters of one run."""
    module = model().eval()
    state = {name: part[0] for name, part in backbone.weights(params).items()}
    module.load_state_dict(state | {name: state[first] for name, first in backbone.tied.items()})
    options = {"edge_weight": torch.ones(arcs.shape[1])} if isinstance(module, Weighted | NoPyG) else {}
    return module(X, arcs, **options)


# Hard masks


@pytest.mark.parametrize("name", LAYERS)
def test_a_dead_edge_is_a_deleted_edge(name: str) -> None:
    backbone = wrap(LAYERS[name])
    params = backbone.init([4, 7])
    alive = torch.rand(2, GRAPH.num_edges, generator=torch.Generator().manual_seed(2)) < 0.5
    masked = backbone.apply(backbone.weights(params), GRAPH.batch(alive, False), alive.float(), Features(X))
    for run in range(2):
        edges = GRAPH.edges[:, alive[run]]
        arcs = torch.cat([edges, edges.flip(0)], dim=1)
        plain = called(lambda: LAYERS[name](FEATURES, CLASSES), backbone, params[run : run + 1], arcs)
        torch.testing.assert_close(masked[run], plain)


@pytest.mark.parametrize("name", READY)
def test_ready_made_models_of_pyg_are_taken_as_instances(name: str) -> None:
    model = READY[name]()
    backbone = wrap(model)
    params = backbone.init([0, 1])
    assert not torch.equal(params.prunable[0], params.prunable[1])
    values = torch.rand(2, GRAPH.num_edges, generator=torch.Generator().manual_seed(2)) - 0.5
    scored = outputs(backbone, params, values)
    assert scored.shape == (2, NODES, CLASSES)
    assert bool(torch.isfinite(scored).all())
    assert not torch.allclose(scored, outputs(backbone, params, torch.ones_like(values)))


# Scores


def one_layer(layer: Callable[[], Module], weighted: bool = False) -> Callable[[], Module]:
    class OneLayer(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.layer(x, edge_index)

    class OneWeightedLayer(OneLayer):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # type: ignore[override]
            return self.layer(x, edge_index, edge_weight)

    return OneWeightedLayer if weighted else OneLayer


PATH = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)  # 0 – 1 – 2
PATH_X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]])
A, B = 0.5, -2.0  # scores of its two edges


def on_path(layer: Callable[[], Module], weighted: bool = False) -> Tensor:
    """Outputs with scores A and B, all weight matrices the identity and all else 0."""
    backbone = ModuleBackbone(one_layer(layer, weighted), PATH, PATH_X, 2)
    identity = torch.cat([torch.eye(2).flatten()] * len(backbone.prunable.shapes)).unsqueeze(0)
    params = Params(identity, torch.zeros(1, backbone.other.size))
    return outputs(backbone, params, torch.tensor([[A, B]]), PATH_X, PATH)[0]


def test_a_score_multiplies_the_message_and_a_mean_counts_it_as_one() -> None:
    x = PATH_X
    expected = torch.stack([A * x[1], (A * x[0] + B * x[2]) / 2, B * x[1]])
    torch.testing.assert_close(on_path(lambda: SAGEConv(2, 2, root_weight=False, bias=False)), expected)


def test_self_loops_that_a_layer_adds_keep_score_1() -> None:
    x = PATH_X  # attention vectors of 0: every arc, self-loops included, gets the same share
    expected = torch.stack([(x[0] + A * x[1]) / 2, (x[1] + A * x[0] + B * x[2]) / 3, (x[2] + B * x[1]) / 2])
    torch.testing.assert_close(on_path(lambda: GATConv(2, 2, bias=False)), expected)


def test_a_layer_without_edge_weight_normalises_by_the_number_of_alive_edges() -> None:
    x, r = PATH_X, 6**-0.5
    expected = torch.stack([x[0] / 2 + A * r * x[1], x[1] / 3 + A * r * x[0] + B * r * x[2], x[2] / 2 + B * r * x[1]])
    torch.testing.assert_close(on_path(lambda: GCNConv(2, 2, bias=False)), expected)


def test_a_layer_with_edge_weight_normalises_by_magnitudes_and_sends_the_sign() -> None:
    x, d = PATH_X, torch.tensor([1 + abs(A), 1 + abs(A) + abs(B), 1 + abs(B)])
    left, right = A / (d[0] * d[1]).sqrt(), B / (d[1] * d[2]).sqrt()
    expected = torch.stack(
        [x[0] / d[0] + left * x[1], x[1] / d[1] + left * x[0] + right * x[2], x[2] / d[2] + right * x[1]]
    )
    torch.testing.assert_close(on_path(lambda: GCNConv(2, 2, bias=False), weighted=True), expected)


def test_each_layer_gets_scores_once_whether_or_not_it_takes_edge_weight() -> None:
    class Mixed(Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(2, 2, bias=False), SAGEConv(2, 2, root_weight=False, bias=False)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            return self.second(self.first(x, edge_index, edge_weight), edge_index)

    backbone = ModuleBackbone(Mixed, PATH, PATH_X, 2)
    params = Params(torch.cat([torch.eye(2).flatten()] * 2).unsqueeze(0), torch.zeros(1, 0))
    hidden = on_path(lambda: GCNConv(2, 2, bias=False), weighted=True)
    expected = torch.stack([A * hidden[1], (A * hidden[0] + B * hidden[2]) / 2, B * hidden[1]])
    torch.testing.assert_close(outputs(backbone, params, torch.tensor([[A, B]]), PATH_X, PATH)[0], expected)


@pytest.mark.parametrize("name", LAYERS)
def test_scores_of_any_sign_and_zero_give_finite_outputs_and_gradients(name: str) -> None:
    backbone = wrap(LAYERS[name])
    values = torch.linspace(-3, 3, GRAPH.num_edges).round().unsqueeze(0).requires_grad_()
    out = outputs(backbone, backbone.init([0]), values)
    (grad,) = torch.autograd.grad(out.square().sum(), values)
    assert bool(torch.isfinite(out).all())
    assert bool(torch.isfinite(grad).all())
    assert bool((grad[values == 0] != 0).any())


def test_scores_of_one_change_nothing() -> None:
    backbone = wrap(LAYERS["gat"])
    params, ones = backbone.init([0]), torch.ones(1, GRAPH.num_edges)
    assert torch.equal(outputs(backbone, params, ones), outputs(backbone, params, ones.clone().requires_grad_()))


# Agreement with the built-in backbones


def gcn_model(i: int, o: int) -> Module:
    return Weighted(partial(GCNConv, bias=False), (i, 6, o))


def gin_model(i: int, o: int) -> Module:
    return Stack(lambda a, b: GINConv(Linear(a, b), aggr="mean", train_eps=True), (i, 6, o))


class Attention(Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.first, self.second = GATConv(in_features, 6, heads=2), GATConv(12, out_features)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(F.elu(self.first(x, edge_index)), edge_index)


def transposed(flat: Tensor, i: int, o: int) -> Tensor:
    """Our flat [in, hidden], [hidden, out] as torch's [hidden, in], [out, hidden]."""
    parts = flat.split([i * 6, 6 * o], dim=1)
    shaped = [parts[0].view(-1, i, 6), parts[1].view(-1, 6, o)]
    return torch.cat([part.transpose(1, 2).flatten(1) for part in shaped], dim=1)


def train_both(model: Callable[[int, int], Module], kind: Any, scoring: ScoreTraining | None) -> tuple[Fit, Fit, Any]:
    """Our backbone and the user's, from the same weights, with the same masks."""
    problem, own = problem_backbone(model)
    i, o = problem.x.shape[1], problem.num_classes
    ours = kind(i, o, 6, dropout=0.0)
    start = ours.init([0, 1])
    masks = random_masks(Counts(ours.prunable.size, problem.graph.num_edges), Counts(60, 40), (0, 1))
    key, how = rng.keys([0, 1], "test"), Training(lr=0.02, weight_decay=1e-3)
    expected = fit(problem, ours, start, masks, 12, how, key, scoring=scoring)
    start = Params(transposed(start.prunable, i, o), start.other.new_zeros(2, own.other.size))
    masks = Masks(transposed(masks.weights, i, o), masks.edges)
    return expected, fit(problem, own, start, masks, 12, how, key, scoring=scoring), problem


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("model", "kind"), [(gcn_model, GCN), (gin_model, GIN)], ids=["gcn", "gin"])
def test_training_goes_as_that_of_the_built_in_backbone(
    model: Callable[[int, int], Module], kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, found, problem = train_both(model, kind, None)
    sizes = problem.x.shape[1], problem.num_classes
    assert torch.equal(found.epoch, expected.epoch)
    assert found.params is not None
    assert expected.params is not None
    torch.testing.assert_close(found.params.prunable, transposed(expected.params.prunable, *sizes))
    monkeypatch.setattr(initial, "NOISE", 0.0)  # it is drawn by position, and the layouts differ
    expected, found, _ = train_both(model, kind, SCORING)
    assert found.scores is not None
    assert expected.scores is not None
    torch.testing.assert_close(found.scores.edges, expected.scores.edges)
    torch.testing.assert_close(found.scores.weights, transposed(expected.scores.weights, *sizes))


@pytest.mark.usefixtures("double")
def test_attention_agrees_with_the_built_in_backbone() -> None:
    x = X.double()
    ours, own = GAT(FEATURES, CLASSES, 6, heads=2), wrap(Attention, x=x)
    params = ours.init([0])
    params = Params(params.prunable, torch.randn(params.other.shape, generator=torch.Generator().manual_seed(5)))
    w = ours.weights(params)
    heads = torch.cat([w["layer0.head0.weight"], w["layer0.head1.weight"]], dim=2)
    mapped = {"first.lin.weight": heads.transpose(1, 2), "second.lin.weight": w["layer1.weight"].transpose(1, 2)}
    for layer, name in (("layer0", "first"), ("layer1", "second")):
        mapped |= {f"{name}.att_src": w[f"{layer}.source"], f"{name}.att_dst": w[f"{layer}.target"]}
        mapped[f"{name}.bias"] = w[f"{layer}.bias"]
    same = Params(own.prunable.join(mapped), own.other.join(mapped))
    values = torch.randn(1, GRAPH.num_edges, generator=torch.Generator().manual_seed(6))
    torch.testing.assert_close(outputs(own, same, values, x), outputs(ours, params, values, x))


# Randomness and state


def train_normed(seeds: tuple[int, ...], scoring: ScoreTraining | None = None, epochs: int = 6) -> Fit:
    problem, backbone = problem_backbone(Normed)
    masks = Masks.full(len(seeds), Counts(backbone.prunable.size, problem.graph.num_edges))
    start = backbone.init(seeds)
    before = start.other.clone()
    result = fit(
        problem,
        backbone,
        start,
        masks,
        epochs,
        Training(lr=0.02, weight_decay=1e-3),
        rng.keys(seeds, "test"),
        scoring=scoring,
    )
    assert torch.equal(start.other, before)
    return result


def test_a_run_is_bitwise_the_same_alone_and_in_a_batch() -> None:
    together = train_normed((3, 8, 5)).params
    assert together is not None
    for run, seed in enumerate((3, 8, 5)):
        torch.manual_seed(seed)  # must not matter
        alone = train_normed((seed,)).params
        assert alone is not None
        assert torch.equal(together.prunable[run], alone.prunable[0])
        assert torch.equal(together.other[run], alone.other[0])
    scored, one = train_normed((3, 8), SCORING).scores, train_normed((8,), SCORING).scores
    assert scored is not None
    assert one is not None
    assert torch.equal(scored.edges[1], one.edges[0])


def test_runs_share_a_forward_pass_without_influence_on_each_other() -> None:
    """As on a GPU: one call of the backbone for all runs, with gradients and running statistics."""
    backbone = wrap(Normed)
    params, key = backbone.init([0, 1]), torch.tensor([7, 8])

    def step(runs: slice) -> tuple[Tensor, Tensor, Tensor]:
        parts = params[runs]
        weights = {
            name: part.clone() if name in backbone.buffers else part.clone().requires_grad_()
            for name, part in backbone.weights(parts).items()
        }
        ones = torch.ones(len(parts.prunable), GRAPH.num_edges)
        batch = GRAPH.batch(ones.bool(), False)
        out = backbone.head(weights, batch, backbone.stem(weights, batch, ones, Features(X)), Dropout(key[runs]))
        (grad,) = torch.autograd.grad(out.square().sum(), weights["first.lin_l.weight"])
        return out.detach(), grad, weights["norm.running_mean"]

    for together, *alone in zip(step(slice(0, 2)), step(slice(0, 1)), step(slice(1, 2)), strict=True):
        assert torch.equal(together, torch.cat(alone))


def test_dropout_is_a_function_of_the_key_and_leaves_torchs_generator_alone() -> None:
    backbone = wrap(Normed)
    weights = backbone.weights(backbone.init([0]))
    batch = GRAPH.batch(torch.ones(1, GRAPH.num_edges, dtype=torch.bool), False)
    ones = torch.ones(1, GRAPH.num_edges)

    def draw(key: int) -> Tensor:
        state = backbone.stem(weights, batch, ones, Features(X))
        return backbone.head(weights, batch, state, Dropout(torch.tensor([key])))

    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = draw(1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    assert torch.equal(draw(1), first)
    assert not torch.equal(draw(2), first)


@pytest.mark.usefixtures("double")
def test_batch_normalisation_goes_as_in_a_plain_training_loop() -> None:
    problem, backbone = problem_backbone(lambda i, o: Normed(i, o, dropout=0.0))
    start = backbone.init([0])
    full = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges))
    found = fit(problem, backbone, start, full, 4, Training(lr=0.02, weight_decay=1e-3), rng.keys([0], "test"))
    module = Normed(problem.x.shape[1], problem.num_classes, dropout=0.0)
    module.load_state_dict({name: part[0].clone() for name, part in backbone.weights(start).items()})
    optimiser = torch.optim.Adam(module.parameters(), lr=0.02, weight_decay=1e-3)
    arcs = torch.cat([problem.graph.edges, problem.graph.edges.flip(0)], dim=1)
    for _ in range(int(found.epoch)):
        optimiser.zero_grad()
        F.cross_entropy(module(problem.x, arcs)[problem.train], problem.y[problem.train]).backward()
        optimiser.step()
    assert found.params is not None
    for name, part in backbone.weights(found.params).items():
        torch.testing.assert_close(part[0], module.state_dict()[name].double(), msg=name)
    module.eval()
    accuracy = (module(problem.x, arcs).argmax(1) == problem.y)[problem.val].double().mean()
    assert float(found.val) == float(accuracy)


def test_frozen_parameters_and_buffers_of_each_seed_stay_as_they_are() -> None:
    class Frozen(Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.map, self.conv = Linear(i, 4), SAGEConv(4, o)
            self.map.requires_grad_(False)
            self.register_buffer("shift", torch.rand(4))
            self.register_buffer("order", torch.randperm(4))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv((self.map(x) + self.shift)[:, self.order], edge_index)

    problem, backbone = problem_backbone(Frozen)
    start = backbone.init([0, 1])
    assert backbone.buffers == {"map.weight", "map.bias", "shift", "order"}
    assert not torch.equal(start.other[0], start.other[1])
    full = Masks.full(2, Counts(backbone.prunable.size, problem.graph.num_edges))
    params = fit(
        problem, backbone, start, full, 3, Training(lr=0.02, weight_decay=1e-2), rng.keys([0, 1], "test")
    ).params
    assert params is not None
    for name in backbone.buffers:
        assert torch.equal(backbone.weights(params)[name], backbone.weights(start)[name])


# What is made of a model


def test_initial_weights_depend_on_the_seed_alone() -> None:
    backbone = wrap(Deep)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    both = backbone.init([0, 1])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(9)
    assert torch.equal(wrap(Deep).init([1]).prunable[0], both.prunable[1])
    assert not torch.equal(both.prunable[0], both.prunable[1])


def test_an_instance_is_never_modified() -> None:
    model = models.GCN(FEATURES, 6, 2, CLASSES, norm="batch_norm")
    before = copy.deepcopy(model.state_dict())
    backbone = wrap(model)
    outputs(backbone, backbone.init([0]), torch.full((1, GRAPH.num_edges), 0.5))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(not conv._message_forward_hooks for conv in model.convs)


def names(backbone: ModuleBackbone) -> list[str]:
    return [name for name, _ in backbone.prunable.shapes]


def test_by_default_weight_matrices_of_linear_maps_are_pruned() -> None:
    assert names(wrap(Deep)) == [
        "enter.weight",
        "leave.weight",
        "convs.0.weight1",
        "convs.1.weight1",
        "convs.1.weight2",
    ]
    assert names(wrap(LAYERS["gatv2"])) == [
        f"{layer}.{lin}.weight" for layer in ("first", "second") for lin in ("lin_l", "lin_r")
    ]
    normed = wrap(Normed)
    assert "norm.weight" not in names(normed)
    assert normed.buffers == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


def test_what_is_pruned_can_be_chosen_by_patterns_or_a_function() -> None:
    assert names(wrap(Normed, prunable=["first.*.weight", "norm.weight"])) == [
        "first.lin_l.weight",
        "first.lin_r.weight",
        "norm.weight",
    ]
    assert names(wrap(Normed, prunable=lambda name, value: value.dim() == 2 and "second" in name)) == [
        "second.lin_l.weight",
        "second.lin_r.weight",
    ]
    with pytest.raises(ConfigError, match=r"no parameter is named third\.\*; there are first"):
        wrap(Normed, prunable=["first.*", "third.*"])
    with pytest.raises(ConfigError, match="no parameter to prune"):
        wrap(Normed, prunable=lambda name, value: False)


def test_parameters_without_influence_are_left_out() -> None:
    class Spare(Deep):
        def __init__(self, i: int, o: int) -> None:
            super().__init__(i, o)
            self.spare = Linear(4, 4)

    backbone = wrap(Spare)
    assert names(backbone) == names(wrap(Deep))
    assert "spare.bias" not in dict(backbone.other.shapes)


def test_macs_count_weights_for_every_node_and_messages_for_every_arc() -> None:
    backbone = wrap(LAYERS["sage"])  # aggregates before it maps
    assert backbone.aggregation_widths == (FEATURES, 6)
    assert wrap(LAYERS["gcn"]).aggregation_widths == (6, CLASSES)
    assert wrap(READY["GAT"]()).aggregation_widths == (6, 2 * CLASSES)
    assert inference_macs(backbone, GRAPH, Counts(10, 7)) == NODES * 10 + 14 * (FEATURES + 6)


# Refusals


class Blind(Module):
    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.map = Linear(i, o)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.map(x)


class TakesData(Blind):
    def forward(self, data: Any) -> Tensor:  # type: ignore[override]
        return self.map(data.x)


class NeedsAttributes(Blind):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:  # type: ignore[override]
        return self.map(x)


class Unscorable(Blind):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        z = self.map(x)
        return z.index_add(0, edge_index[1], z[edge_index[0]])


class Restless(Stack):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(F.dropout(self.first(x, edge_index)), edge_index)


class Sparse(Stack):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            matrix = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(edge_index.shape[1]), (NODES, NODES))
            return self.second(x, matrix.to_sparse_csr())


class Remembers(Stack):
    arcs: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.arcs = edge_index if self.arcs is None else self.arcs
        return self.second(self.first(x, self.arcs), edge_index)


def sage(kind: type[Stack]) -> Callable[[int, int], Module]:
    return lambda i, o: kind(SAGEConv, (i, 6, o))


REFUSED: dict[str, tuple[Any, str]] = {
    "caches": (lambda i, o: models.GCN(i, 6, 2, o, cached=True), "remembers the graph.*cached=False"),
    "caches in one layer": (sage(Remembers), "remembers the graph"),
    "ignores the edges": (Blind, "outputs do not depend on the edges"),
    "takes no edges": (TakesData, r"must be forward\(x, edge_index\).*it is forward\(data"),
    "needs edge attributes": (NeedsAttributes, r"must be forward\(x, edge_index\).*edge_attr"),
    "cannot be scored": (Unscorable, "no way to score its edges"),
    "random in evaluation": (sage(Restless), r"training=self\.training"),
    "sparse matrix": (lambda i, o: Sparse(SAGEConv, (i, i, o)), "sparse matrix"),
    "outputs too wide": (lambda i, o: models.GCN(i, 6, 2, 4), r"shape \[12, 3\].*found \[12, 4\]"),
    "outputs a tuple": (one_layer(lambda: torch.nn.LSTM(FEATURES, 3)), "forward failed|found tuple"),
    "forward fails": (lambda: models.GCN(FEATURES + 1, 6, 2, CLASSES), "forward failed on x of shape"),
    "three sizes": (models.GCN, "without a default are in_channels, hidden_channels, num_layers"),
    "factory fails": (lambda i, o: models.GCN(i, 6, None, o), "failed: TypeError"),
    "makes something else": (lambda: 3, "must make a torch.nn.Module, found int"),
    "no reset_parameters": (Deep(FEATURES, CLASSES), r"def make\(in_features, out_features\): return Deep\(…\)"),
    "no module": (3, "is a torch.nn.Module"),
    "nothing to train": (one_layer(lambda: gin(FEATURES, CLASSES).requires_grad_(False)), "no parameter to prune"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_that_cannot_be_used_is_refused_with_the_reason(case: str) -> None:
    model, reason = REFUSED[case]
    with pytest.raises(ConfigError, match=reason):
        wrap(model)


def test_a_model_whose_last_layer_starts_at_zero_is_not_taken_for_one_that_ignores_the_edges() -> None:
    class Zero(Deep):
        def __init__(self, i: int, o: int) -> None:
            super().__init__(i, o)
            torch.nn.init.zeros_(self.leave.weight)

    assert wrap(Zero).aggregation_widths == (6, 6)
