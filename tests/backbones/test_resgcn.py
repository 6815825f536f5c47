from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from backbone_samples import (
    CLASSES,
    FEATURES,
    NODES,
    all_alive,
    arcs,
    check_dead_edges_are_deleted,
    check_runs_do_not_influence_each_other,
    draw,
    features,
    random_graph,
    weights,
)
from torch import Tensor
from torch_geometric.nn import DeepGCNLayer, GENConv

from aceglt.backbones import Dropout, ResGCN
from aceglt.numerics import ops
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph

HIDDEN, LAYERS, EDGE_FEATURES = 6, 4, 3

pytestmark = pytest.mark.usefixtures("double")


@pytest.fixture
def resgcn() -> ResGCN:
    return ResGCN(FEATURES, CLASSES, HIDDEN, LAYERS)


def with_features(batch: GraphBatch, attr: Tensor) -> GraphBatch:
    return replace(batch, edge_attr=attr)


class PygResGCN(torch.nn.Module):
    """DeeperGCN from PyG's layers, as its ogbn-proteins example puts them together."""

    def __init__(self, edge_features: int | None) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(FEATURES, HIDDEN)
        self.decoder = torch.nn.Linear(HIDDEN, CLASSES)
        convs = [
            GENConv(HIDDEN, HIDDEN, "softmax", learn_t=True, num_layers=1, bias=True, edge_dim=edge_features)
            for _ in range(LAYERS)
        ]
        norms = [torch.nn.LayerNorm(HIDDEN) for _ in range(LAYERS)]
        act = torch.nn.ReLU()
        self.first, self.last = convs[0], norms[-1]
        self.blocks = torch.nn.ModuleList(
            DeepGCNLayer(conv, norm, act, block="res+") for conv, norm in zip(convs[1:], norms[:-1], strict=True)
        )

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        h = self.first(self.encoder(x), edge_index, edge_attr)
        for block in self.blocks:
            h = block(h, edge_index, edge_attr)
        return self.decoder(torch.relu(self.last(h)))

    def ours(self) -> dict[str, torch.nn.Parameter]:
        """Its parameters by our names; matrices are the transposes of ours."""
        found = {"encoder": self.encoder, "decoder": self.decoder}
        convs, norms = [self.first, *(b.conv for b in self.blocks)], [*(b.norm for b in self.blocks), self.last]
        parts = {}
        for layer, (conv, norm) in enumerate(zip(convs, norms, strict=True)):
            found[f"layer{layer}"] = conv.mlp[0]
            if hasattr(conv, "lin_edge"):
                found[f"layer{layer}.edge"] = conv.lin_edge
            parts[f"layer{layer}.temperature"] = conv.aggr_module.t
            parts[f"norm{layer}.scale"], parts[f"norm{layer}.shift"] = norm.weight, norm.bias
        for name, linear in found.items():
            parts[f"{name}.weight"], parts[f"{name}.bias"] = linear.weight, linear.bias
        return parts


def as_ours(name: str, value: Tensor, ours: Tensor) -> Tensor:
    return value.t().expand_as(ours) if name.endswith("weight") else value.reshape(ours.shape)


@pytest.mark.parametrize("edge_features", [0, EDGE_FEATURES])
@pytest.mark.parametrize("seed", [0, 1])
def test_agrees_with_pyg(seed: int, edge_features: int) -> None:
    resgcn = ResGCN(FEATURES, CLASSES, HIDDEN, LAYERS, edge_features=edge_features)
    graph, x, named = random_graph(seed), features(0.5), weights(resgcn)
    attr = draw(graph.num_edges, edge_features) if edge_features else None
    batch = with_features(all_alive(resgcn, graph), attr)
    pyg = PygResGCN(edge_features or None)
    theirs = pyg.ours()
    assert theirs.keys() == named.keys()
    with torch.no_grad():
        for name, value in named.items():
            theirs[name].copy_(value[0].t() if name.endswith("weight") else value.reshape(theirs[name].shape))
    expected = pyg(x, arcs(graph), attr.repeat(2, 1) if attr is not None else None)
    out = resgcn.apply(named, batch, torch.ones(1, graph.num_edges), Features(x))
    torch.testing.assert_close(out[0], expected)

    expected.square().sum().backward()
    out.square().sum().backward()
    for name, value in named.items():
        torch.testing.assert_close(
            value.grad, as_ours(name, theirs[name].grad, value), msg=lambda m, n=name: f"{n}: {m}"
        )


def naive_messages(graph: Graph, x: Tensor, scores: Tensor, temperature: Tensor, term: Tensor | None) -> Tensor:
    """One run, node by node, from the definition; `term` [E, H] is what edges add to messages."""
    out = torch.zeros_like(x)
    for node in range(graph.num_nodes):
        incident = [(int(u + v) - node, e) for e, (u, v) in enumerate(graph.edges.t()) if node in (u, v)]
        if incident:
            sources, edges = map(list, zip(*incident, strict=True))
            inner = x[sources] if term is None else x[sources] + term[edges]
            message = inner.relu() + 1e-7
            out[node] = (scores[edges, None] * (temperature * message).softmax(dim=0) * message).sum(dim=0)
    return out


@pytest.mark.parametrize(("edge_features", "safe_range"), [(0, 80.0), (0, 0.0), (EDGE_FEATURES, 80.0)])
def test_a_score_multiplies_after_the_softmax(edge_features: int, safe_range: float) -> None:
    """Where exponents are in a safe range, where they are not, and with edge features."""
    graph = random_graph()
    leaves = {
        "x": draw(1, NODES, HIDDEN), "scores": draw(1, graph.num_edges, seed=1), "temperature": draw(1, seed=2),
        "weight": draw(1, edge_features, HIDDEN, seed=3), "bias": draw(1, HIDDEN, seed=4),
    }  # fmt: skip
    leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items()}
    attr = draw(graph.num_edges, edge_features, seed=5)
    batch = with_features(graph.batch(torch.ones(1, graph.num_edges, dtype=torch.bool), False), attr)
    terms = (leaves["weight"], leaves["bias"]) if edge_features else None
    out = ops.softmax_messages(
        batch, leaves["x"], ops.arc_values(batch, leaves["scores"]), leaves["temperature"], terms, safe_range
    )
    term = attr @ leaves["weight"][0] + leaves["bias"][0] if edge_features else None
    expected = naive_messages(graph, leaves["x"][0], leaves["scores"][0], leaves["temperature"], term)
    torch.testing.assert_close(out[0], expected)
    wanted = [leaves[name] for name in (leaves if edge_features else ("x", "scores", "temperature"))]
    ours, theirs = (torch.autograd.grad(o.pow(3).sum(), wanted) for o in (out, expected))
    torch.testing.assert_close(ours, theirs)


def test_the_number_of_channels_at_a_time_changes_nothing() -> None:
    graph = random_graph()
    batch = graph.batch(torch.ones(2, graph.num_edges, dtype=torch.bool), False)
    x, scores, t = draw(2, NODES, 20).requires_grad_(), draw(batch.num_arcs), draw(2)

    def both(arc_elements: int | None) -> tuple[Tensor, ...]:
        out = ops.softmax_messages(batch, x, scores, t, safe_range=0.0, arc_elements=arc_elements)
        return out, *torch.autograd.grad(out.square().sum(), x)

    in_parts = both(arc_elements=1)  # eight, eight and four channels
    assert all(torch.equal(a, b) for a, b in zip(both(arc_elements=None), in_parts, strict=True))


def test_a_large_temperature_does_not_overflow() -> None:
    graph = random_graph()
    batch = graph.batch(torch.ones(1, graph.num_edges, dtype=torch.bool), False)
    x = 100 * draw(1, NODES, HIDDEN)
    out = ops.softmax_messages(batch, x.float(), torch.ones(batch.num_arcs).float(), torch.tensor([50.0]).float())
    adjacent = torch.zeros(NODES, NODES, 1)
    adjacent[tuple(arcs(graph))] = 1.0
    highest = (adjacent * x[0].relu()).amax(dim=1)
    torch.testing.assert_close(out[0].double(), highest, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize(("edge_features", "safe_range"), [(0, 80.0), (0, 0.0), (EDGE_FEATURES, 80.0)])
def test_a_gpu_agrees_with_the_cpu(edge_features: int, safe_range: float) -> None:
    graph = random_graph()
    alive = draw(2, graph.num_edges, seed=3) > -0.5
    parts = [draw(2, NODES, HIDDEN), draw(2, graph.num_edges), draw(2), draw(2, edge_features, HIDDEN), draw(2, HIDDEN)]
    attr, results = draw(graph.num_edges, edge_features), []
    for device in ("cpu", "cuda"):
        batch = with_features(graph.to(device).batch(alive.to(device), False), attr.to(device))
        leaves = [part.to(device).requires_grad_() for part in parts]
        x, scores, temperature, *terms = leaves
        terms = tuple(terms) if edge_features else None
        out = ops.softmax_messages(batch, x, ops.arc_values(batch, scores), temperature, terms, safe_range)
        wanted = leaves if edge_features else leaves[:3]
        results.append([t.cpu() for t in (out, *torch.autograd.grad(out.pow(3).sum(), wanted))])
    torch.testing.assert_close(*results)


def test_dead_edges_are_deleted(resgcn: ResGCN) -> None:
    check_dead_edges_are_deleted(resgcn)


def test_dead_edges_are_deleted_with_edge_features() -> None:
    resgcn, graph, x = ResGCN(FEATURES, CLASSES, HIDDEN, 3, edge_features=2), random_graph(), Features(features(0.5))
    attr, alive = draw(graph.num_edges, 2), draw(graph.num_edges, seed=3) > 0
    filtered = Graph.from_edge_index(graph.edges[:, alive], NODES)
    named, values = weights(resgcn), draw(1, graph.num_edges, seed=4)
    masked = resgcn.apply(named, with_features(graph.batch(alive.unsqueeze(0), False), attr), values, x)
    deleted = resgcn.apply(named, with_features(all_alive(resgcn, filtered), attr[alive]), values[:, alive], x)
    torch.testing.assert_close(masked, deleted)


def test_runs_do_not_influence_each_other(resgcn: ResGCN) -> None:
    check_runs_do_not_influence_each_other(resgcn)


def test_runs_with_edge_features_do_not_influence_each_other() -> None:
    graph = random_graph()
    alive = draw(3, graph.num_edges, seed=3) > torch.tensor([[-9.0], [0.0], [0.5]])
    attr, x, weight, bias = draw(graph.num_edges, 2), draw(3, NODES, 4), draw(3, 2, 4), draw(3, 4)
    batch = with_features(graph.batch(alive, False), attr)
    together = ops.softmax_messages(batch, x, torch.ones(batch.num_arcs), torch.ones(3), (weight, bias))
    for run in range(3):
        one = slice(run, run + 1)
        single = with_features(graph.batch(alive[one], False), attr)
        ones = torch.ones(single.num_arcs)
        alone = ops.softmax_messages(single, x[one], ones, torch.ones(1), (weight[one], bias[one]))
        torch.testing.assert_close(together[one], alone)


def gradients(resgcn: ResGCN, named: dict[str, Tensor]) -> list[Tensor]:
    graph, x = random_graph(), Features(features(0.5))
    scores, batch = draw(1, graph.num_edges).requires_grad_(), all_alive(resgcn, graph)
    state = resgcn.stem(named, batch, scores, x)
    out = resgcn.head(named, batch, state, Dropout(torch.tensor([3])))
    return [out, *torch.autograd.grad(out.square().sum(), [*named.values(), scores])]


def test_checkpointing_blocks_changes_no_bit_and_keeps_less(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ResGCN(FEATURES, CLASSES, HIDDEN, LAYERS)
    saving = ResGCN(FEATURES, CLASSES, HIDDEN, LAYERS, checkpoint_blocks=True)
    named = weights(plain)
    kept = {}
    for resgcn in (plain, saving):
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t):
            gradients(resgcn, named)
        kept[resgcn] = sum(sizes)
    assert all(torch.equal(a, b) for a, b in zip(gradients(plain, named), gradients(saving, named), strict=True))
    assert kept[saving] < kept[plain]


def test_only_matrices_are_prunable_and_the_rest_starts_neutral() -> None:
    resgcn = ResGCN(128, 40, edge_features=8)
    assert resgcn.prunable.size == 128 * 128 + 28 * (8 * 128 + 128 * 128) + 128 * 40
    other = resgcn.other.split(resgcn.init([0, 1]).other)
    assert {
        float(v) for name, part in other.items() if name.endswith(("scale", "temperature")) for v in part.flatten()
    } == {1.0}
    assert not any(part.any() for name, part in other.items() if name.endswith(("bias", "shift")))


def test_the_norm_is_over_channels_of_one_node(resgcn: ResGCN) -> None:
    named, h = weights(resgcn), draw(1, NODES, HIDDEN)
    normed = F.layer_norm(h[0], [HIDDEN], named["norm0.scale"][0, 0], named["norm0.shift"][0, 0])
    torch.testing.assert_close(resgcn._activated(named, 0, h, None)[0], normed.relu())
