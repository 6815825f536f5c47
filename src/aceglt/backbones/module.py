"""Any `torch.nn.Module` as a backbone: the user's own model, run by run."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch_geometric.nn import Linear, MessagePassing

from aceglt.backbones.base import Backbone, Dropout, Layout, Params, Weights
from aceglt.backbones.messages import Arcs, Messages
from aceglt.backbones.probe import probe, takes_weight
from aceglt.config.own import name_of
from aceglt.errors import ConfigError
from aceglt.numerics import ops, rng
from aceglt.numerics.batch import GraphBatch
from aceglt.numerics.features import Features
from aceglt.numerics.graph import Graph

Prunable = Sequence[str] | Callable[[str, Tensor], bool]
"""Patterns of parameters' names, or a function of a parameter's name and value."""


class ModuleBackbone(Backbone):
    """Calls a model's `forward(x, edge_index)` or `forward(x, edge_index, edge_weight)` for each run by itself.

    Dead edges are not in `edge_index`. A score s reaches a message-passing layer in one of two ways: if the layer's
    output depends on `edge_weight`, that is |s|, so that a layer that normalises does so by magnitudes, and the message
    gets the sign; otherwise the message is multiplied by s. Messages along edges that are not the graph's, such as
    self-loops that a layer adds, stay as they are.

    Args:
        model: a class or factory, called with (in_features, out_features) if it has two parameters without a default,
            with nothing if it has none; or an instance with `reset_parameters`, of which a copy is used.
        graph: the graph that the model is tried out on.
        x: its features, dense or sparse; the model is given them so.
        out_features: the width that the outputs must have.
        prunable: which parameters are pruned; by default the weight matrices of linear maps.

    Raises:
        ConfigError: the model cannot be used; the message says why.
    """

    self_loops = False
    batched = False

    def __init__(
        self, model: Any, graph: Graph, x: Tensor, out_features: int, prunable: Prunable | None = None
    ) -> None:
        self.name = name_of(model)
        self._make = maker(model, self.name, x.shape[1], out_features)
        self._graph, self._x = graph, x
        self._module = self._build(0).to(x.device)
        found = probe(self._module, self.name, graph, x, out_features)
        self.aggregation_widths, self._takes_weight = found.widths, found.takes_weight
        self._messages = Messages(self._module, found.weighted)
        # Parameters without influence are left out; frozen ones are kept with the buffers.
        parameters = dict(self._module.named_parameters())
        trained = {name: p for name, p in parameters.items() if name in found.used}
        state = {name: p for name, p in parameters.items() if not p.requires_grad} | dict(self._module.named_buffers())
        chosen = _chosen(self._module, self.name, trained, prunable)
        others = {name: p for name, p in trained.items() if name not in chosen} | state
        self.prunable = Layout(tuple((name, tuple(p.shape)) for name, p in trained.items() if name in chosen))
        self.other = Layout(tuple((name, tuple(p.shape)) for name, p in others.items()))
        self.buffers = frozenset(state)
        self.unused = frozenset(parameters) - trained.keys() - self.buffers
        self.tied = _tied(self._module)
        modules = dict(self._module.named_modules())  # each once: one under two names is not to be given twice
        self._twins = {name: first for name, first in self.tied.items() if name.rpartition(".")[0] in modules}
        self._dtypes = {name: None if tensor.is_floating_point() else tensor.dtype for name, tensor in state.items()}

    def init(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> Params:
        """What the model's own initialisation draws when torch's generator is seeded with the run's key."""
        runs = [self._initial(seed) for seed in seeds]
        drawn = {name: torch.stack([run[name] for run in runs]) for name in runs[0]}
        return Params(self.prunable.join(drawn), self.other.join(drawn)).to(device)

    def stem(self, weights: Weights, graph: GraphBatch, edge_values: Tensor, x: Features) -> list[tuple[Arcs, Tensor]]:
        """Each run's arcs, their scores and its features. Where the first dropout is cannot be seen from outside."""
        dtype = weights[self.prunable.shapes[0][0]].dtype
        values = ops.arc_values(graph, edge_values).to(dtype)
        plain = not values.requires_grad and bool((values == 1).all())
        return [
            (Arcs(edge_index, None if plain else values[part], graph.num_nodes), x.of_run(run).to(dtype))
            for run, (edge_index, part) in enumerate(graph.by_run)
        ]

    def head(
        self, weights: Weights, graph: GraphBatch, state: list[tuple[Arcs, Tensor]], dropout: Dropout | None
    ) -> Tensor:
        """In training, the model's dropout draws from torch's generator, seeded with the run's key of this step.

        It may draw in evaluation too, without an effect; not from a generator that another thread has seeded.
        """
        keys = dropout.key.tolist() if dropout is not None else [0] * len(state)
        self._module.train(dropout is not None)
        names = [name for name, _ in (*self.prunable.shapes, *self.other.shapes)]  # an objective may have its own
        parts = zip(*(weights[name].unbind() for name in names), strict=True)
        outputs = []
        for run, ((arcs, x), key, tensors) in enumerate(zip(state, keys, parts, strict=True)):
            call = dict(zip(names, tensors, strict=True))
            call |= {name: call[name].to(dtype or x.dtype, copy=True) for name, dtype in self._dtypes.items()}
            given = call | {name: call[first] for name, first in self._twins.items() if first in call}
            options = {"edge_weight": arcs.weight.to(x.dtype)} if self._takes_weight else {}
            with rng.seeded(key, x.device), self._messages.along(arcs):
                outputs.append(self._call(given, (x, arcs.edge_index), options))
            if dropout is not None:
                for name in self.buffers:
                    weights[name][run].copy_(call[name])
        return torch.stack(outputs)

    def _call(self, given: dict[str, Tensor], inputs: tuple[Tensor, ...], options: dict[str, Tensor]) -> Tensor:
        """Outputs with these tensors. Torch's own tying leaves a module under two names with tensors of the call."""
        made: Tensor = functional_call(self._module, given, inputs, options, tie_weights=False)
        return made

    def _build(self, seed: int) -> Module:
        """The model with the initial weights of a seed, on the CPU."""
        with rng.seeded(int(rng.keys([seed], "init", "module")), torch.device("cpu")):
            module = self._make().to(device="cpu", dtype=self._x.dtype)
            if any(is_lazy(parameter) for parameter in module.parameters()):
                self._materialise(module)
        return module

    def _materialise(self, module: Module) -> None:
        """Lazy parameters get their shapes, and are drawn, in the first forward pass."""
        graph = self._graph.to("cpu")
        arcs = graph.batch(torch.ones(1, graph.num_edges, dtype=torch.bool), False).by_run[0][0]
        ones = torch.ones(arcs.shape[1], dtype=self._x.dtype)
        options = {"edge_weight": ones} if takes_weight(module, self.name) else {}
        try:
            with torch.no_grad():
                module.eval()(self._x.cpu(), arcs, **options)
        except Exception as reason:
            raise ConfigError(f"{self.name}: its first forward pass failed: {reason}") from reason

    def _initial(self, seed: int) -> dict[str, Tensor]:
        module = self._build(seed)
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        plain = {name: tensor.detach().to(self._x.dtype) for name, tensor in tensors.items()}
        for name in self.buffers:
            if not torch.equal(plain[name].to(tensors[name].dtype), tensors[name]):
                raise ConfigError(f"{self.name}: its buffer {name} has values that {self._x.dtype} cannot hold")
        return plain


def maker(model: Any, name: str, in_features: int, out_features: int) -> Callable[[], Module]:
    """A function that makes the model anew, its weights drawn from torch's generator."""
    if isinstance(model, Module):
        if not callable(getattr(model, "reset_parameters", None)):
            raise ConfigError(
                f"{name}: an instance needs reset_parameters(), to draw weights for each seed; or pass a function that "
                f"makes it: {_example(type(model))}"
            )

        def reset_copy() -> Module:
            module = copy.deepcopy(model)
            module.reset_parameters()  # type: ignore[operator]
            return module

        return reset_copy
    if not callable(model):
        raise ConfigError(f"{name}: a backbone of your own is a torch.nn.Module: its class, a factory or an instance")
    arguments = _arguments(model, name, in_features, out_features)

    def make() -> Module:
        try:
            made = model(*arguments)
        except Exception as reason:
            raise ConfigError(f"{name}{arguments} failed: {type(reason).__name__}: {reason}") from reason
        if not isinstance(made, Module):
            raise ConfigError(f"{name}{arguments} must make a torch.nn.Module, found {type(made).__name__}")
        return made

    return make


def _arguments(model: Callable[..., Any], name: str, in_features: int, out_features: int) -> tuple[int, ...]:
    parameters = inspect.signature(model).parameters.values()
    without_default = [p for p in parameters if p.default is p.empty]
    required = [p for p in without_default if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(required) not in (0, 2) or any(p.kind is p.KEYWORD_ONLY for p in required):
        raise ConfigError(
            f"{name} can be called neither as {name}(in_features, out_features), here ({in_features}, "
            f"{out_features}), nor as {name}(): its parameters without a default are "
            f"{', '.join(p.name for p in required)}; pass a function of the two sizes: {_example(model)}"
        )
    return (in_features, out_features) if required else ()


def _example(model: Callable[..., Any]) -> str:
    made = getattr(model, "__name__", "MyModel")
    return f"def make(in_features, out_features): return {made}(…), in the shell as module:make"


def _tied(module: Module) -> dict[str, str]:
    """Further names of tensors that a module has under several, with the first ones."""
    first = {id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    every = (part(remove_duplicate=False) for part in (module.named_parameters, module.named_buffers))
    return {name: first[id(tensor)] for part in every for name, tensor in part if first[id(tensor)] != name}


def _chosen(module: Module, name: str, parameters: Mapping[str, Tensor], prunable: Prunable | None) -> set[str]:
    """Names of the parameters to prune; ConfigError where there are none, or a pattern fits none."""
    if prunable is None:
        chosen = {n for n in parameters if _is_linear_map(module, n)}
    elif callable(prunable):
        chosen = {n for n, p in parameters.items() if prunable(n, p.detach())}
    else:
        idle = [pattern for pattern in prunable if not any(fnmatchcase(n, pattern) for n in parameters)]
        if idle:
            raise ConfigError(f"{name}: no parameter is named {idle[0]}; there are {', '.join(parameters)}")
        chosen = {n for n in parameters if any(fnmatchcase(n, pattern) for pattern in prunable)}
    if not chosen:
        raise ConfigError(
            f"{name}: no parameter to prune; by default these are weight matrices of Linear and of message-passing "
            f"layers. Choose with prunable= among {', '.join(parameters) or 'none (nothing can be trained)'}"
        )
    return chosen


def _is_linear_map(module: Module, name: str) -> bool:
    """Whether a parameter is a weight matrix of a linear layer, or one that a message-passing layer has itself."""
    path, _, last = name.rpartition(".")
    owner, parameter = module.get_submodule(path), module.get_parameter(name)
    if isinstance(owner, torch.nn.Linear | Linear):
        return last == "weight"
    vector = parameter.dim() != 2 or 1 in parameter.shape
    return isinstance(owner, MessagePassing) and not vector and "bias" not in last and "att" not in last
