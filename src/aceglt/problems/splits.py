"""Which nodes train, validate and test: as the data says, or drawn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from aceglt.errors import DataError
from aceglt.numerics import rng

PER_CLASS, VALIDATION, TEST = 20, 500, 1000  # nodes of "random:SEED": for training, of each class
UNSPLIT = "random:0:0.6,0.2"
"""What data without masks get."""
MASKS = ("train_mask", "val_mask", "test_mask")
_PARTS = ("x", "edge_index", "edge_weight", "edge_attr", "y", "metric")


def split_data(data: Any, split: str, name: str) -> Any:
    """What a problem needs of the data, with the masks [N] of one split.

    "given" is the first of the data's (`UNSPLIT` where it has none), a number any of them, counted from 0.
    "random:SEED" draws 20 training nodes per class, and 500 and 1000 of the others; "random:SEED:0.6,0.2" these shares
    for training and validation, the rest for test.
    """
    masks: dict[str, Any] = {mask: getattr(data, mask, None) for mask in MASKS}
    y = getattr(data, "y", None)
    if split == "given" and y is not None and all(mask is None for mask in masks.values()):
        split = UNSPLIT
    elif split.isdigit() and all(mask is None for mask in masks.values()):
        raise DataError(f"{name}: has no split of its own; found split {split}. Leave it out, or draw one: {UNSPLIT}")
    if split.startswith("random:"):
        masks = dict(_drawn(y, split, name))
    else:
        masks = _chosen(masks, 0 if split == "given" else int(split), name)
    return SimpleNamespace(**{part: getattr(data, part, None) for part in _PARTS}, **masks)


def _chosen(masks: dict[str, Any], number: int, name: str) -> dict[str, Any]:
    """One of several splits, which PyG keeps as columns [N, K]; a mask [N] is of all of them."""
    several = {mask: values.shape[1] for mask, values in masks.items() if getattr(values, "ndim", 1) == 2}
    found = max(several.values(), default=1)
    for mask, count in several.items():
        if count == 0:
            raise DataError(f"{name}: has no split: {mask} is empty")
        if count != found:
            raise DataError(f"{name}: {mask} has {count} splits, another mask has {found}")
    if number >= found:
        splits = f"{found} splits, numbered 0 to {found - 1}" if found > 1 else "one split, number 0"
        raise DataError(f"{name}: has {splits}; found split {number}")
    return {mask: values[:, number] if mask in several else values for mask, values in masks.items()}


def _drawn(y: Any, split: str, name: str) -> dict[str, Tensor]:
    if not isinstance(y, Tensor):
        raise DataError(f"{name}: a random split needs y, one class per node")
    y = y.detach().cpu()
    if y.dim() == 2 and y.shape[1] == 1 and not y.is_floating_point():
        y = y.squeeze(1)
    _, seed, *shares = split.split(":")
    if not shares:
        return random_split(y, int(seed), name)
    train, val = (float(share) for share in shares[0].split(","))
    return share_split(y, int(seed), train, val, name)


def share_split(y: Tensor, seed: int, train: float, val: float, name: str) -> dict[str, Tensor]:
    """Masks [N] bool by name: these shares of the nodes with a class (y from 0) or a known label, the rest for test.

    Nodes are drawn by the seed, without regard to their classes but that each has a training node.
    Raises DataError where there are too few nodes.
    """
    if y.dim() == 1:
        _check_classes(y, name)
    nodes = ((y >= 0) if y.dim() == 1 else ~y.isnan().all(dim=1)).nonzero().squeeze(1)
    order = nodes[rng.uniform_at(rng.keys([seed], "split", "shares"), nodes)[0].argsort()]
    if y.dim() == 1:  # the first of each class to the front
        found, classes = y[order].unique(return_inverse=True)
        first = torch.full((len(found),), len(order))
        first = first.scatter_reduce(0, classes, torch.arange(len(order)), "amin")
        order = order[(~torch.isin(torch.arange(len(order)), first)).int().argsort(stable=True)]
    counts = [round(train * len(order)), round(val * len(order))]
    counts.append(len(order) - sum(counts))
    if min(counts) < 1:
        raise DataError(
            f"{name}: shares {train:g} and {val:g} of {len(order)} labelled nodes leave {', '.join(map(str, counts))} "
            "for training, validation and test; each needs at least one"
        )
    return _masks(order.split(counts), len(y))


def random_split(y: Tensor, seed: int, name: str) -> dict[str, Tensor]:
    """Masks [N] bool by name, drawn by a seed among the nodes with a class (y [N] from 0; others are left out).

    Raises DataError where y is not one class per node, or there are too few nodes.
    """
    _check_classes(y, name)
    train = torch.zeros(len(y), dtype=torch.bool)
    for label in range(int(y.max()) + 1 if len(y) else 0):
        members = (y == label).nonzero().squeeze(1)
        if len(members) < PER_CLASS:
            raise DataError(
                f"{name}: a random split needs {PER_CLASS} nodes of each class, class {label} has {len(members)}; "
                "give masks of your own"
            )
        order = rng.uniform_at(rng.keys([seed], "split", "train"), members)[0].argsort()
        train[members[order[:PER_CLASS]]] = True
    rest = ((y >= 0) & ~train).nonzero().squeeze(1)
    if len(rest) < VALIDATION + TEST:
        raise DataError(
            f"{name}: a random split needs {VALIDATION + TEST} nodes for validation and test besides "
            f"{PER_CLASS} per class, found {len(rest)}; give masks of your own"
        )
    rest = rest[rng.uniform_at(rng.keys([seed], "split", "rest"), rest)[0].argsort()][: VALIDATION + TEST]
    return _masks((train.nonzero().squeeze(1), *rest.split([VALIDATION, TEST])), len(y))


def _check_classes(y: Tensor, name: str) -> None:
    if y.dim() != 1 or y.is_floating_point():
        raise DataError(
            f"{name}: a random split needs one integer class per node in y, found {y.dtype} {list(y.shape)}"
        )


def _masks(parts: tuple[Tensor, ...], num_nodes: int) -> dict[str, Tensor]:
    empty = torch.zeros(num_nodes, dtype=torch.bool)
    return {name: empty.index_fill(0, nodes, True) for name, nodes in zip(MASKS, parts, strict=True)}
