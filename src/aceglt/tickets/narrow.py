"""The user's own module without dead hidden units: found by trying, made by cutting parameters, kept if it is the same.

A hidden unit is a row of linear maps (and an entry of biases and batch norms) and columns of the linear maps that read
it. Which belong together is seen by moving one output of a map at a time and looking where an input moves. What cannot
be cut so (attention over units, norms across them, sums that a module reshapes) is left as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aceglt.numerics import rng

_MOVE = 8.0  # how far an output is moved: through a ReLU, at some nodes at least
_SEEN = 1e-9  # difference above which an input has moved
_SAME = 1e-9  # relative difference of outputs below which two modules are the same
_NODES = 12

Run = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""A forward pass of a module on x and edge_index."""


@dataclass(frozen=True)
class Readers:
    """Where the outputs of a linear map go: by name, what is added to an output's number to get an input's."""

    columns: dict[str, tuple[int, ...]]  # of linear maps
    norms: frozenset[str]


def narrowed(module: nn.Module, in_features: int, run: Run) -> tuple[nn.Module, int]:
    """The module for inference without the hidden units that can be cut, and how many these are."""
    probe = _Probe(in_features, run)
    wanted, small, cut = probe.outputs(module), copy.deepcopy(module), 0
    done: set[str] = set()
    while True:
        readers = probe.readers(small)  # anew: what is cut before a unit moves its place
        names = next((group for group in _together(readers) if not done & set(group)), None)
        if names is None:
            return small, cut
        done |= set(names)
        for dead in _candidates(small, names, readers):
            trial = copy.deepcopy(small)
            with suppress(Exception):  # whatever a module does with a shape that it was not made for
                _cut(trial, names, readers, ~dead)
                if torch.allclose(probe.outputs(trial), wanted, rtol=_SAME, atol=_SAME * float(wanted.abs().max())):
                    small, cut = trial, cut + int(dead.sum())
                    break


class _Probe:
    """Passes of modules on a small graph, in double precision."""

    def __init__(self, in_features: int, run: Run) -> None:
        key = rng.keys([0], "narrow")
        draws = rng.uniform(key, _NODES * in_features).view(_NODES, in_features).double()
        ring = torch.arange(_NODES)
        arcs = torch.stack([ring, (ring + 1) % _NODES])
        more = torch.stack([ring, (ring * 5 + 3) % _NODES])
        arcs = torch.cat([arcs, more[:, more[0] != more[1]]], dim=1)
        self._x, self._run = 2 * draws - 1, run
        self._arcs = torch.unique(torch.cat([arcs, arcs.flip(0)], dim=1), dim=1)

    @torch.no_grad()
    def outputs(self, module: nn.Module) -> Tensor:
        return self._run(copy.deepcopy(module).double().eval(), self._x, self._arcs)

    @torch.no_grad()
    def readers(self, module: nn.Module) -> dict[str, Readers]:
        """Of each linear map that others read unit by unit."""
        module = copy.deepcopy(module).double().eval()
        for number, parameter in enumerate(module.parameters()):  # zeros would hide who reads what
            draws = rng.uniform(rng.keys([number], "narrow"), parameter.numel()).view_as(parameter)
            parameter.copy_((2 * draws - 1).sign() * (0.2 + draws))
        parts = {name: part for name, part in module.named_modules() if _is_map(part) or _is_norm(part)}
        before, calls = self._seen(module, parts)
        found = {}
        for name, part in parts.items():
            width = part.weight.shape[0] if _is_map(part) and calls[name] == 1 else 0
            if width < 2:
                continue
            moved = {unit: self._seen(module, parts, name, unit)[0] for unit in {0, width // 2, width - 1}}
            places = {other: _offsets(before[other], {u: seen[other] for u, seen in moved.items()}) for other in before}
            if places.pop(""):
                continue  # its outputs are the whole module's
            direct = {other: offsets for other, offsets in places.items() if offsets and other != name}
            norms = frozenset(other for other in direct if other in parts and _is_norm(parts[other]))
            columns = {other: offsets for other, offsets in direct.items() if other not in norms}
            if columns and all(direct[norm] == (0,) for norm in norms):
                found[name] = Readers(columns, norms)
        return found

    def _seen(
        self, module: nn.Module, parts: dict[str, Any], moved: str | None = None, unit: int = 0
    ) -> tuple[dict[str, Tensor], dict[str, int]]:
        """The inputs of parts by name, the outputs under "", and how often each part is called."""
        seen: dict[str, Tensor] = {}
        calls = dict.fromkeys(parts, 0)

        def note(name: str) -> Callable[..., None]:
            def hook(_: Any, inputs: tuple[Tensor, ...]) -> None:
                calls[name] += 1
                seen[name] = inputs[0].reshape(-1, inputs[0].shape[-1])

            return hook

        def move(_: Any, __: Any, output: Tensor) -> Tensor:
            output = output.clone()
            output[..., unit] += _MOVE * torch.linspace(-1, 1, output[..., unit].numel()).view_as(output[..., unit])
            return output

        handles = [part.register_forward_pre_hook(note(name)) for name, part in parts.items()]
        if moved is not None:
            handles.append(parts[moved].register_forward_hook(move))
        try:
            seen[""] = self._run(module, self._x, self._arcs)
        finally:
            for handle in handles:
                handle.remove()
        return seen, calls


def _offsets(before: Tensor, after: dict[int, Tensor]) -> tuple[int, ...] | None:
    """By how much the numbers of inputs that move are above those of the outputs that move them; none where nothing
    moves, and None where they have no such relation."""
    found = set()
    for unit, seen in after.items():
        if seen.shape != before.shape:
            return None
        columns = ((seen - before).abs() > _SEEN).any(dim=0).nonzero().flatten()
        found.add(tuple((columns - unit).tolist()))
    return found.pop() if len(found) == 1 else None


def _is_map(part: nn.Module) -> bool:
    from torch_geometric.nn import Linear

    return isinstance(part, nn.Linear | Linear)


def _is_norm(part: nn.Module) -> bool:
    return isinstance(part, nn.BatchNorm1d)


def _together(readers: dict[str, Readers]) -> Iterator[list[str]]:
    """Names of maps whose outputs are added up: those that any reader reads at the same place."""
    left = list(readers)
    while left:
        group = [left.pop(0)]
        for name in group:
            places = set(readers[name].columns.items())
            joined = [other for other in left if places & set(readers[other].columns.items())]
            group += joined
            left = [other for other in left if other not in joined]
        yield group


def _candidates(module: nn.Module, names: list[str], readers: dict[str, Readers]) -> Iterator[Tensor]:
    """Units that may be dead, [units] bool: those that nobody reads, and of these those that nothing enters."""
    silent = torch.stack([(_weight(module, name) == 0).all(dim=1) for name in names]).all(dim=0)
    unread = torch.ones_like(silent)
    for name in names:
        for reader, offsets in readers[name].columns.items():
            read = (_weight(module, reader) != 0).any(dim=0)
            for offset in offsets:
                unread &= ~read[offset : offset + len(unread)]
    for dead in (unread | silent, unread, unread & silent):
        dead = dead if not bool(dead.all()) else dead.index_fill(0, torch.tensor([0]), False)
        if bool(dead.any()):
            yield dead


def _weight(module: nn.Module, name: str) -> Tensor:
    weight: Tensor = module.get_submodule(name).weight  # type: ignore[assignment]
    return weight.detach()


def _cut(module: nn.Module, names: list[str], readers: dict[str, Readers], keep: Tensor) -> None:
    """Leave these units [units] bool, in place."""
    units, left = len(keep), int(keep.sum())
    cut: set[str] = set()
    for name in names:
        part: Any = module.get_submodule(name)
        _take(part, "weight", keep, 0)
        _take(part, "bias", keep, 0)
        _renumber(part, ("out_features", "out_channels"), units, left)
        owner: Any = module.get_submodule(name.rpartition(".")[0])
        for parameter in [n for n, p in owner.named_parameters(recurse=False) if p.shape[-1:] == (units,)]:
            _take(owner, parameter, keep, -1)  # a layer's bias is its own, not its linear map's
        _renumber(owner, ("out_channels",), units, left)
        for norm in readers[name].norms - cut:
            cut.add(norm)
            part = module.get_submodule(norm)
            for entry in ("weight", "bias", "running_mean", "running_var"):
                _take(part, entry, keep, 0)
            _renumber(part, ("num_features",), units, left)
        for reader, offsets in readers[name].columns.items():
            if reader in cut:
                continue
            cut.add(reader)
            part = module.get_submodule(reader)
            columns = torch.ones(part.weight.shape[1], dtype=torch.bool)
            for offset in offsets:
                columns[offset : offset + units] = keep
            before = len(columns)
            _take(part, "weight", columns, 1)
            for owner in (part, module.get_submodule(reader.rpartition(".")[0])):
                _renumber(owner, ("in_features", "in_channels"), before, int(columns.sum()))


def _take(part: Any, name: str, keep: Tensor, dim: int) -> None:
    value = getattr(part, name, None)
    if not isinstance(value, Tensor):
        return
    places = keep.nonzero().flatten().to(value.device)
    if value.shape[dim] != len(keep):  # its owner's, which is cut already
        return
    taken = value.detach().index_select(dim, places)
    if isinstance(value, nn.Parameter):
        setattr(part, name, nn.Parameter(taken, value.requires_grad))
    else:
        setattr(part, name, taken)


def _renumber(part: Any, names: tuple[str, ...], before: int, after: int) -> None:
    for name in names:
        if getattr(part, name, None) == before:
            setattr(part, name, after)
