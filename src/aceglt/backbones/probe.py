"""What somebody else's model does with a graph, found out by trying, before anything is trained."""

from __future__ import annotations

import copy
import inspect
import textwrap
from collections import defaultdict
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from aceglt.backbones.messages import message_layers
from aceglt.errors import ConfigError
from aceglt.numerics import rng
from aceglt.numerics.graph import Graph

_TOLERANCE = 1e-5  # relative difference above which outputs differ
_USES = "its forward must be forward(x, edge_index) or forward(x, edge_index, edge_weight)"


class Findings(NamedTuple):
    """What is known of a model that can be used."""

    takes_weight: bool  # whether forward has a parameter `edge_weight`
    weighted: frozenset[str]  # message-passing layers whose outputs depend on it
    widths: tuple[int, ...]  # of the messages, one for each time that they are passed on
    used: frozenset[str]  # parameters that the outputs depend on


def probe(module: Module, name: str, graph: Graph, x: Tensor, out_features: int) -> Findings:
    """Try a model on the graph and on half of it. Raises ConfigError where it cannot be used, with the reason."""
    weights = takes_weight(module, name)
    fresh = partial(_Trial, module, name, x, weights)
    alive = torch.ones(1, graph.num_edges, dtype=torch.bool, device=x.device)
    whole = graph.batch(alive, False).by_run[0][0]
    alive[:, ::2] = False
    half = graph.batch(alive, False).by_run[0][0]

    trial = fresh()
    widths = trial.record_widths()
    first = trial(whole)
    seen = tuple(widths)
    if not isinstance(first, Tensor) or first.shape != (len(x), out_features):
        found = list(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise ConfigError(
            f"{name}: its outputs must be a tensor of shape [{len(x)}, {out_features}] (nodes, outputs), found {found}"
        )
    if not _same(first, trial(whole, seed=1)):
        raise ConfigError(
            f"{name}: its outputs in evaluation mode are random; is F.dropout called without training=self.training?"
        )
    if x.layout != torch.strided:  # dropout of sparse features, for one, fails in training alone
        fresh(training=True)(whole)
    on_half = fresh()(half)
    try:
        after_whole = trial(half)
    except ConfigError:
        after_whole = None
    if not _same(on_half, after_whole):
        raise ConfigError(
            f"{name}: it remembers the graph that it saw first, so that pruned edges would stay; turn caching off "
            "(cached=False in PyG's layers)"
        )
    if _same(first, on_half):
        raise ConfigError(
            f"{name}: its outputs do not depend on the edges, so there is no graph to prune; {_USES}, and use the edges"
        )
    weighted, depends = trial.weighted(whole) if weights else (frozenset[str](), False)
    if not seen and not depends:
        raise ConfigError(
            f"{name}: there is no way to score its edges: it has no torch_geometric.nn.MessagePassing layer, and its "
            "outputs do not depend on a parameter edge_weight of forward; give it one of the two"
        )
    return Findings(weights, weighted, seen, trial.used(whole))


class _Trial:
    """A copy of a model, with random weights: initial ones may hide what the model does, zeros above all."""

    def __init__(self, module: Module, name: str, x: Tensor, takes_weight: bool, training: bool = False) -> None:
        self._name, self._x, self._takes_weight = name, x, takes_weight
        self._module = copy.deepcopy(module).train(training)
        self._layers = message_layers(self._module)
        with torch.no_grad(), rng.seeded(0, x.device):
            for parameter in self._module.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))

    def __call__(self, edge_index: Tensor, weight: Tensor | None = None, seed: int = 0, grad: bool = False) -> Any:
        """The outputs; ConfigError with the reason where forward fails."""
        options = {}
        if self._takes_weight:
            ones = torch.ones(edge_index.shape[1], dtype=self._x.dtype, device=self._x.device)
            options["edge_weight"] = ones if weight is None else weight
        try:
            with torch.set_grad_enabled(grad), rng.seeded(seed, self._x.device):
                return self._module(self._x, edge_index, **options)
        except ConfigError:
            raise
        except Exception as reason:
            sparse = "sparse x (a model that needs a dense one must be given one: data.x = data.x.to_dense())"
            raise ConfigError(
                f"{self._name}: forward failed on {'x' if self._x.layout == torch.strided else sparse} of shape "
                f"{list(self._x.shape)} and edge_index of shape {list(edge_index.shape)}: "
                f"{type(reason).__name__}: {textwrap.shorten(str(reason), 300, placeholder=' …')}"
            ) from reason

    def record_widths(self) -> list[int]:
        """A list that gets the width of every message from now on."""
        widths: list[int] = []

        def refuse_matrix(layer: Any, inputs: tuple[Any, ...]) -> None:
            if not isinstance(inputs[0], Tensor) or inputs[0].layout != torch.strided:
                raise ConfigError(
                    f"{self._name}: it makes a sparse matrix of edge_index, which cannot be scored; leave it as it is"
                )

        def note(layer: Any, inputs: tuple[Any, ...], message: Any) -> Any:
            if not isinstance(message, Tensor):
                raise ConfigError(f"{self._name}: a message of {type(layer).__name__} is no tensor and has no score")
            widths.append(message.numel() // max(1, message.shape[layer.node_dim]))
            return message

        for layer in self._layers.values():
            layer.register_propagate_forward_pre_hook(refuse_matrix)
            layer.register_message_forward_hook(note)
        return widths

    def weighted(self, edge_index: Tensor) -> tuple[frozenset[str], bool]:
        """Layers whose outputs depend on `edge_weight`, and whether the model's do.

        Every layer is given what it would get with all weights 1, whatever the layers before it do.
        """
        plain: dict[Any, list[Any]] = defaultdict(list)
        differ: set[Any] = set()

        def keep(layer: Any, inputs: Any, output: Any) -> None:
            plain[layer].append(output)

        def compare(layer: Any, inputs: Any, output: Any) -> Any:
            before = plain[layer].pop(0)
            if isinstance(output, Tensor) and not _same(before, output):
                differ.add(layer)
            return before

        with rng.seeded(0, self._x.device):
            weight = torch.rand(edge_index.shape[1], device=self._x.device, dtype=self._x.dtype) + 0.5
        for hook, given in ((keep, None), (compare, weight)):
            handles = [layer.register_forward_hook(hook) for layer in self._layers.values()]
            self(edge_index, given)
            for handle in handles:
                handle.remove()
        names = frozenset(name for name, layer in self._layers.items() if layer in differ)
        return names, not _same(self(edge_index), self(edge_index, weight))

    def used(self, edge_index: Tensor) -> frozenset[str]:
        """Parameters that get a gradient."""
        parameters = {name: p for name, p in self._module.named_parameters() if p.requires_grad}
        outputs = self(edge_index, grad=True)
        if not parameters or not outputs.requires_grad:
            return frozenset()
        grads = torch.autograd.grad(outputs.sum(), list(parameters.values()), allow_unused=True)
        return frozenset(name for name, grad in zip(parameters, grads, strict=True) if grad is not None)


def takes_weight(module: Module, name: str) -> bool:
    """Whether forward has a parameter `edge_weight`; ConfigError where it cannot be called with what there is."""
    signature = inspect.signature(module.forward)
    weights = "edge_weight" in signature.parameters
    try:
        signature.bind("x", "edge_index", **({"edge_weight": None} if weights else {}))
    except TypeError as reason:
        raise ConfigError(f"{name}: {_USES}; it is forward{signature} ({reason})") from None
    return weights


def _same(a: Any, b: Any) -> bool:
    """Whether outputs are equal but for rounding."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape != b.shape:
        return a is b
    a, b = torch.nan_to_num(a.detach()), torch.nan_to_num(b.detach())
    return bool((a - b).norm() <= _TOLERANCE * torch.maximum(a.norm(), b.norm()))
