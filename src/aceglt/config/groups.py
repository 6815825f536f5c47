"""The settings that every search has, in groups: when it stops, how it trains, scores and prunes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aceglt.config.fields import (
    SCORE,
    SHARE,
    SHARE_OR_NONE,
    STOP,
    TRAIN,
    Group,
    above,
    at_least,
    from_to,
    one_of,
    setting,
)

AXES = ("model", "graph", "joint")


@dataclass(frozen=True)
class Stopping(Group):
    """When a search ends; a run may be continued with other values."""

    levels: int = setting(
        10, "Levels of pruning [default: {default}]; 0 trains the dense baseline alone.", at_least(0), STOP
    )
    target_model: float | None = setting(None, "Stop at this model sparsity, e.g. 0.9.", SHARE, STOP)
    target_graph: float | None = setting(None, "Stop at this graph sparsity, e.g. 0.3.", SHARE, STOP)
    patience: int | None = setting(
        None, "Stop after this many losing levels in a row (by validation).", at_least(1), STOP
    )


@dataclass(frozen=True)
class Training(Group):
    """How weights are trained."""

    epochs: int = setting(200, "Epochs of a full training [default: {default}].", at_least(1), TRAIN)
    lr: float = setting(0.01, "Learning rate [default: {default}; gat 0.005; infoclust 0.001].", above(0), TRAIN)
    weight_decay: float = setting(5e-4, "Weight decay [default: {default}; task link 0].", at_least(0), TRAIN)
    precision: str = setting(
        "float32", "Numbers to compute in: float32 or bfloat16 [default: {default}].",
        one_of("float32", "bfloat16"), TRAIN,
    )  # fmt: skip
    """What the backbone computes in; weights and Adam's state stay in float32."""
    deterministic: bool = setting(
        False, "Bit-identical results on a GPU too, at some cost in speed.", None, TRAIN, options=["--deterministic"]
    )
    partitions: int = setting(
        1, "Parts of the nodes to train on and evaluate one after the other [default: {default}].", at_least(1), TRAIN
    )
    partition_by: str = setting(
        "random", "What parts are made of: random nodes [default] or METIS clusters.", one_of("random", "clusters"),
        TRAIN,
    )  # fmt: skip
    """Random nodes are drawn anew at every epoch."""
    parts_per_step: int = setting(1, "Parts whose gradients make one step [default: {default}].", at_least(1), TRAIN)
    """Over how many parts the gradient of one step is averaged; several processes share them."""


@dataclass(frozen=True)
class Scoring(Group):
    """What trains scores, and which of them decide."""

    signal: str = setting(
        "teacher",
        "What trains the scores: teacher or labels [default: {default}; random, gebt and infoclust labels].",
        one_of("teacher", "labels"),
    )
    """The labels, or the dense model's soft predictions beside them."""
    beta: float = setting(10.0, "Weight of the teacher's signal [default: {default:g}].", at_least(0), SCORE)
    teacher_temperature: float = setting(
        0.03, "What the teacher's outputs are divided by; below 1 sharpens them [default: {default}].", above(0), SCORE
    )
    teacher_smoothing: float = setting(
        0.9, "How much of the teacher's answer at a node is its neighbours' [default: {default}].", SHARE_OR_NONE, SCORE
    )
    """The teacher's probabilities are spread along edges, as personalised PageRank does, going on with this chance at
    every step. Where that loses the training nodes, and with partitions, the teacher stays as it is. For tasks on
    nodes."""
    lambda_edges: float = setting(0.0, "λ1: L1 on edge scores [default: {default:g}; gebt 1e-4].", at_least(0), SCORE)
    lambda_weights: float = setting(0.0, "λ2: L1 on weight scores [default: {default:g}].", at_least(0), SCORE)
    decay_scores: bool = setting(
        False, "Whether weight decay touches scores [default: no; gebt yes].", None, SCORE,
        options=["--decay-scores/--no-decay-scores"],
    )  # fmt: skip
    clamp_scores: bool = setting(
        False, "Whether scores are kept in [0, 1].", None, SCORE, options=["--clamp-scores/--no-clamp-scores"]
    )
    score_epoch: str = setting(
        "best", "Whose scores decide: the best-validation epoch's or the last: best or last.", one_of("best", "last"),
        SCORE,
    )  # fmt: skip
    score_epochs: int | None = setting(
        60, "Epochs that a level's scores are trained, at most --epochs [default: {default}].", at_least(1), SCORE
    )
    """None, as the published presets have it, is as many as `epochs`."""


@dataclass(frozen=True)
class Pruning(Group):
    """What goes at a level."""

    axis: str = setting(
        "model", "What gets sparser from level to level: model, graph or joint.", one_of(*AXES), shown=True
    )
    prunable: tuple[str, ...] | None = setting(
        None,
        "What is pruned in your own model: a pattern of parameters' names (repeatable) "
        "[default: weight matrices of linear maps].",
        None,
        SCORE,
        keyword="str | Sequence[str] | Callable[..., bool]",
    )
    balance: float = setting(
        0.75,
        "How much of the weights is divided among matrices: from nothing (0), all weights compete, to everything "
        "(1), each matrix ranks by itself [default: {default}; gebt 0].",
        from_to(0, 1),
        SCORE,
    )
    """In proportion to the sums of the matrices' sides, so that no layer dies out."""
    degree_bonus: float = setting(
        2.0,
        "What ugs and ace add to the importance of an edge, over the root of the product of its ends' degrees "
        "[default: {default:g}].",
        at_least(0),
        SCORE,
    )
    """Degrees count the node itself; with the bonus the last edges of a node stay longer."""
    prune_model: float = setting(0.2, "Share of alive weights that goes per level [default: {default}].", SHARE, SCORE)
    prune_graph: float = setting(0.05, "Share of alive edges that goes per level [default: {default}].", SHARE, SCORE)
    fixed_model: float = setting(
        0.2, "Share of weights that goes at every level of the graph axis [default: {default}].", SHARE_OR_NONE, SCORE
    )
    fixed_graph: float = setting(
        0.05, "Share of edges that goes at every level of the model axis [default: {default}].", SHARE_OR_NONE, SCORE
    )


PUBLISHED: Mapping[str, Any] = {
    "signal": "labels", "teacher_temperature": 0.5, "teacher_smoothing": 0.0, "lambda_edges": 1e-4,
    "lambda_weights": 1e-4, "decay_scores": True, "score_epochs": None, "balance": 0.0, "degree_bonus": 0.0,
}  # fmt: skip
"""How UGS and the paper score and prune, which have no teacher; λ where they do not name the dataset."""
