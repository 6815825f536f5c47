"""Splits that are drawn, not given: 20 training nodes per class, 500 for validation, 1000 for test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from aceglt.errors import DataError
from aceglt.numerics import rng

PER_CLASS, VALIDATION, TEST = 20, 500, 1000


def resplit(data: Any, split: str, name: str) -> Any:
    """What a problem needs of the data, with masks drawn as "random:SEED" says."""
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor):
        raise DataError(f"{name}: a random split needs y, one class per node")
    parts = {part: getattr(data, part, None) for part in ("x", "edge_index", "edge_weight", "edge_attr")}
    masks = random_split(y.detach().cpu(), int(split.removeprefix("random:")), name)
    return SimpleNamespace(**parts, y=y, **masks)


def random_split(y: Tensor, seed: int, name: str) -> dict[str, Tensor]:
    """Masks [N] bool by name, drawn by a seed among the nodes with a class (y [N] from 0; others are left out).

    Raises DataError where y is not one class per node, or there are too few nodes.
    """
    if y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    if y.dim() != 1 or y.is_floating_point():
        raise DataError(
            f"{name}: a random split needs one integer class per node in y, found {y.dtype} {list(y.shape)}"
        )
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
    val, test = (torch.zeros_like(train).index_fill_(0, nodes, True) for nodes in rest.split([VALIDATION, TEST]))
    return {"train_mask": train, "val_mask": val, "test_mask": test}
