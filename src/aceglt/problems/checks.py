"""Is the data usable? Each function raises DataError, naming the data and what is wrong, or returns what it checked."""

from __future__ import annotations

import logging
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from aceglt.errors import DataError
from aceglt.numerics.csr import LAYOUTS, as_csr, entries
from aceglt.numerics.graph import Graph

_INT32 = 2**31 - 1
_SPLITS = {"train": "training", "val": "validation", "test": "test"}


def check_one_graph(data: Any, name: str) -> None:
    """Refuse what is not one graph with nodes of one kind."""
    kinds = {kind.__name__ for kind in type(data).__mro__}
    if kinds & {"HeteroData", "HeteroGraph"}:
        raise DataError(f"{name}: heterogeneous graphs (HeteroData) are not supported; try data.to_homogeneous()")
    if kinds & {"Dataset", "list", "tuple"}:
        raise DataError(
            f"{name}: is a collection of {len(data)} graphs; pass one graph, such as dataset[0]. "
            "Graph-level tasks are not supported"
        )
    if getattr(data, "batch", None) is not None:
        raise DataError(
            f"{name}: has a `batch` vector, so it is a batch of graphs; graph-level tasks are not supported. "
            "If it is one graph, remove `batch`"
        )


def attribute(data: Any, name: str, part: str) -> Tensor:
    """A tensor that the data must have."""
    value = getattr(data, part, None)
    if not isinstance(value, Tensor):
        found, way_out = "nothing" if value is None else type(value).__name__, ""
        if hasattr(value, "toarray"):  # of scipy
            way_out = f"; torch.from_numpy({part}.toarray()) is one, and torch.sparse_csr_tensor keeps it sparse"
        elif hasattr(value, "__array__"):
            way_out = f"; torch.as_tensor({part}) is one"
        raise DataError(f"{name}: needs a tensor `{part}`, found {found}{way_out}")
    value = value.clone() if value.is_inference() else value  # which no gradient is taken of
    return value.detach().cpu()


def _found(values: Tensor) -> str:
    return f"found {values.dtype} of shape {list(values.shape)}"


def checked_features(data: Any, name: str) -> Tensor:
    """x [N, F] in the default type of number: dense, or CSR if it is given in any sparse layout."""
    x = attribute(data, name, "x")
    if x.dim() != 2 or 0 in x.shape:
        raise DataError(f"{name}: x must be [nodes, features] and not empty, found shape {list(x.shape)}")
    if x.layout != torch.strided:
        x = _checked_sparse(x, name)
        bad = entries(x)[0][~torch.isfinite(x.values())].unique()
    else:
        x = x.to(torch.get_default_dtype())
        bad = (~torch.isfinite(x)).any(dim=1).nonzero().squeeze(1)
    if len(bad):
        raise DataError(f"{name}: x has NaN or infinite values at {len(bad)} nodes, the first is node {int(bad[0])}")
    return x


def _checked_sparse(x: Tensor, name: str) -> Tensor:
    """As CSR; refuses what is no plain matrix, or has indices, which torch need not check, that lead outside it."""
    if x.layout not in LAYOUTS or x.dense_dim() or x.is_complex() or x.shape[1] > _INT32:
        raise DataError(
            f"{name}: x must be dense or a matrix of real numbers in COO, CSR or CSC, {_found(x)} in {x.layout} with "
            f"{x.dense_dim()} dense dimension(s)"
        )
    x, fits = x.to(torch.get_default_dtype()), True
    if x.layout != torch.sparse_coo:
        starts = x.crow_indices() if x.layout == torch.sparse_csr else x.ccol_indices()
        fits = int(starts[0]) == 0 and int(starts[-1]) == len(x.values()) and bool((starts.diff() >= 0).all())
    if fits:
        indices = zip(x.shape, entries(x)[:2], strict=True)
        fits = all(not len(i) or 0 <= int(i.min()) <= int(i.max()) < size for size, i in indices)
    if not fits:
        raise DataError(f"{name}: x is a sparse tensor whose indices do not fit its shape {list(x.shape)}")
    return as_csr(x)


def checked_graph(data: Any, name: str, num_nodes: int, directed: bool) -> Graph:
    """The graph with the weights and features of its edges, if there are any."""
    edge_index = attribute(data, name, "edge_index")
    check_edges(edge_index, num_nodes, name)
    weight, attr = (_edge_values(data, name, part, edge_index.shape[1]) for part in ("edge_weight", "edge_attr"))
    if weight is not None and weight.dim() == 2:
        if weight.shape[1] != 1:
            raise DataError(f"{name}: edge_weight must hold one number for each arc, found shape {list(weight.shape)}")
        weight = weight.squeeze(1)
    if attr is not None and attr.dim() == 1:
        attr = attr.unsqueeze(1)
    try:
        graph = Graph.from_edge_index(edge_index, num_nodes, directed, weight, attr)
    except ValueError as problem:
        raise DataError(f"{name}: {problem}") from None
    if graph.num_edges == 0:
        raise DataError(f"{name}: the graph has no edge between two different nodes; there is nothing to prune")
    return graph


def say_one_way(data: Any, name: str) -> None:
    """Log how many arcs are listed without their reverse, where a graph that looks directed is read as undirected.

    A list in which every edge is once, from the lower number to the higher, says nothing about directions.
    """
    source, target = data.edge_index.cpu().long()
    proper = source != target
    size = data.x.shape[0]
    there, back = (
        torch.unique(one[proper] * size + other[proper]) for one, other in ((source, target), (target, source))
    )
    alone = int((~torch.isin(there, back)).sum())
    if alone and not bool((source <= target).all()):
        logging.getLogger("aceglt").warning(
            "%s: %s of %s arcs are listed without their reverse; the graph is searched as undirected, every edge in "
            "both directions, and ticket.apply lists it so. Where directions matter, search with directed=True "
            "(--directed)",
            name,
            f"{alone:,}",
            f"{len(there):,}",
        )


def say_unread(graph: Graph, name: str) -> None:
    """Log that features of edges are not read, which PyG's own layers may take for weights."""
    if graph.edge_attr is not None:
        logging.getLogger("aceglt").warning(
            "%s: the backbone does not read edge_attr; weights of edges belong in edge_weight", name
        )


def check_edges(edge_index: Tensor, num_nodes: int, name: str, part: str = "edge_index") -> None:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise DataError(f"{name}: {part} must be integers of shape [2, edges], {_found(edge_index)}")
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        bad = int(edge_index.min()) if int(edge_index.min()) < 0 else int(edge_index.max())
        raise DataError(f"{name}: {part} names node {bad}, but x has nodes 0 to {num_nodes - 1}")


def checked_labels(data: Any, name: str, num_nodes: int) -> tuple[Tensor, int, list[Tensor]]:
    """One integer class per node, [N] int64, or yes, no and unknown (NaN) for several labels, [N, T]; how many; and
    the nodes of the three splits: disjoint, none empty, and fit to learn from and to be measured on."""
    y = attribute(data, name, "y")
    if y.dim() == 2 and (y.shape[1] > 1 or y.is_floating_point() or y.dtype == torch.bool):
        y, count = _checked_answers(y, num_nodes, name)
        check = _check_answers_of
    else:
        y, count = _checked_classes(y.squeeze(1) if y.dim() == 2 else y, num_nodes, name)
        check = _check_classes_of
    masks = {split: attribute(data, name, f"{split}_mask") for split in _SPLITS}
    for split, mask in masks.items():
        if mask.dtype != torch.bool or mask.shape != (num_nodes,):
            way_out = ""
            if mask.shape == (num_nodes,) and bool(((mask == 0) | (mask == 1)).all()):
                way_out = "; of zeros and ones, give mask.bool()"
            elif not mask.is_floating_point() and mask.dim() == 1 and mask.dtype != torch.bool:
                way_out = f"; of indices, make torch.zeros({num_nodes}, dtype=torch.bool).index_fill(0, indices, True)"
            raise DataError(
                f"{name}: {split}_mask must hold one boolean for each of the {num_nodes} nodes (a mask, not indices), "
                f"{_found(mask)}{way_out}"
            )
        if not bool(mask.any()):
            raise DataError(
                f"{name}: {split}_mask marks no {_SPLITS[split]} node; each of the three masks needs at least one"
            )
    for first, second in combinations(masks, 2):
        shared = int((masks[first] & masks[second]).sum())
        if shared:
            raise DataError(f"{name}: {first}_mask and {second}_mask share {shared} nodes; they must be disjoint")
    check({split: y[mask] for split, mask in masks.items()}, count, name)
    return y, count, [mask.nonzero().squeeze(1) for mask in masks.values()]


def _check_answers_of(splits: dict[str, Tensor], count: int, name: str) -> None:
    if bool(splits["train"].isnan().all()):
        raise DataError(f"{name}: y says nothing about the training nodes; it is NaN at all of them")
    for split in ("val", "test"):
        known = splits[split]
        if not bool(((known == 0).any(dim=0) & (known == 1).any(dim=0)).any()):
            raise DataError(
                f"{name}: no label is both 0 and 1 among the {_SPLITS[split]} nodes; ROC-AUC is not defined"
            )


def _check_classes_of(splits: dict[str, Tensor], count: int, name: str) -> None:
    if min(int(y.min()) for y in splits.values()) < 0:
        raise DataError(f"{name}: y has a negative class at a node of the split")
    missing = sorted(set(range(count)) - set(splits["train"].tolist()))
    there = set(torch.cat(list(splits.values())).tolist())
    if missing and missing == list(range(min(there))):
        raise DataError(f"{name}: the classes in y begin with {min(there)}, not 0; subtract {min(there)} from y")
    if missing:
        first = ", ".join(map(str, missing[:5])) + (f" … ({len(missing)} of {count})" if len(missing) > 5 else "")
        gaps = "; without gaps they are torch.unique(y, return_inverse=True)[1]" if not there >= set(missing) else ""
        raise DataError(f"{name}: no training node has class {first} (classes 0 to {count - 1}){gaps}")


def _edge_values(data: Any, name: str, part: str, num_arcs: int) -> Tensor | None:
    """[A] or [A, D] finite numbers, or None if the data has no such part."""
    if getattr(data, part, None) is None:
        return None
    values = attribute(data, name, part)
    if values.dim() not in (1, 2) or values.shape[0] != num_arcs or values.is_complex():
        raise DataError(
            f"{name}: {part} must hold numbers for each of the {num_arcs} arcs of edge_index, {_found(values)}"
        )
    if not bool(torch.isfinite(values.to(torch.get_default_dtype())).all()):
        raise DataError(f"{name}: {part} has NaN, infinite or huge values")
    return values


def _checked_classes(y: Tensor, num_nodes: int, name: str) -> tuple[Tensor, int]:
    if y.shape != (num_nodes,) or y.is_floating_point():
        hint = "; if these are classes, give y.long()" if y.shape == (num_nodes,) else ""
        raise DataError(f"{name}: y must hold one integer class for each of the {num_nodes} nodes, {_found(y)}{hint}")
    y = y.long()
    num_classes = int(y.max()) + 1
    if num_classes < 2:
        raise DataError(f"{name}: y has {num_classes} class; classification needs two or more")
    if num_classes > num_nodes:
        raise DataError(
            f"{name}: y has class {num_classes - 1}, but there are {num_nodes} nodes; number classes from 0, without "
            "gaps: torch.unique(y, return_inverse=True)[1]"
        )
    return y, num_classes


def _checked_answers(y: Tensor, num_nodes: int, name: str) -> tuple[Tensor, int]:
    answers = y.to(torch.get_default_dtype())
    if y.shape[0] != num_nodes or not bool(((answers == 0) | (answers == 1) | answers.isnan()).all()):
        raise DataError(
            f"{name}: y with several labels must hold 0, 1 or NaN for each of the {num_nodes} nodes, {_found(y)} with "
            "other values or sizes"
        )
    if bool((answers.sum(dim=1) == 1).all()):
        logging.getLogger("aceglt").warning(
            "%s: y has one 1 in each row, as a one-hot code; it is read as several labels per node and measured by "
            "ROC-AUC. For one class per node, give y.argmax(dim=1)",
            name,
        )
    return answers, y.shape[1]
