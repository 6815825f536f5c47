"""The settings in groups: those that every search has, and the options of each backbone and task.

A new backbone or task is a class here and a row of its table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from aceglt.config.checks import (
    POSITIVE,
    SHARE,
    SHARE_OR_ALL,
    SHARE_OR_NONE,
    at_least,
    count,
    from_to,
    must_be,
    one_of,
)
from aceglt.config.fields import Group, score_setting, setting, stop_setting, train_setting, with_default
from aceglt.errors import ConfigError

METRICS = ("accuracy", "roc_auc", "macro_f1", "average_precision")
"""Of tasks on nodes."""
AXES = ("model", "graph", "joint")
MAX_WIDTH = 1 << 20
"""Of a layer; more is a slip of the hand, and would only be found out when memory ends."""
MAX_LAYERS = MAX_HEADS = 1000


@dataclass(frozen=True)
class Stopping(Group):
    """When a search ends; a run may be continued with other values."""

    levels: int = stop_setting(
        10, "Levels of pruning [default: {default}]; 0 trains the dense baseline alone.", count(0)
    )
    target_model: float | None = stop_setting(None, "Stop at this model sparsity, e.g. 0.9.", SHARE)
    target_graph: float | None = stop_setting(None, "Stop at this graph sparsity, e.g. 0.3.", SHARE)
    patience: int | None = stop_setting(None, "Stop after this many losing levels in a row (by validation).", count())


@dataclass(frozen=True)
class Training(Group):
    """How weights are trained."""

    epochs: int = train_setting(200, "Epochs of a full training [default: {default}].", count())
    early_stopping: int | None = train_setting(
        None, "End a training on labels when validation has not got better for so many epochs.", count()
    )
    lr: float = train_setting(0.01, "Learning rate [default: {default}; gat 0.005; infoclust 0.001].", POSITIVE)
    weight_decay: float = train_setting(5e-4, "Weight decay [default: {default}; task link 0].", at_least(0))
    precision: str = train_setting(
        "float32", "Numbers to compute in: float32 or bfloat16 [default: {default}].", one_of("float32", "bfloat16")
    )
    """What the backbone computes in; weights and Adam's state stay in float32."""
    deterministic: bool = train_setting(
        False, "Bit-identical results on a GPU too, at some cost in speed.", options=["--deterministic"]
    )
    partitions: int = train_setting(
        1, "Parts of the nodes to train on and evaluate one after the other [default: {default}].", count()
    )
    partition_by: str = train_setting(
        "random",
        "What parts are made of: random nodes [default], METIS clusters, or nodes and neighbours that are drawn: "
        "random, clusters or neighbours.",
        one_of("random", "clusters", "neighbours"),
    )
    """Random nodes are drawn anew at every epoch, and so are neighbours."""
    neighbours: int = train_setting(
        10, "Neighbours that are drawn for each node and layer, in such parts [default: {default}].", from_to(1, 10_000)
    )
    drop_edge: float = train_setting(
        0.0, "DropEdge: share of the alive edges that a training step leaves out, drawn anew [default: {default:g}].",
        SHARE_OR_NONE,
    )  # fmt: skip
    rewind_epoch: int = train_setting(
        0, "Rewind to the dense model's weights of this epoch [default: {default}, the initial ones].", count(0)
    )
    """From which levels train, scores as well as tickets."""
    parts_per_step: int = train_setting(1, "Parts whose gradients make one step [default: {default}].", count())
    """Over how many parts the gradient of one step is averaged; several processes share them."""


@dataclass(frozen=True)
class Scoring(Group):
    """What trains scores, and which of them decide."""

    signal: str = setting(
        "teacher",
        "What trains the scores: teacher or labels [default: {default}; labels with infoclust and with most methods "
        "other than ugs and ace].",
        one_of("teacher", "labels"),
    )
    """The labels, or the dense model's soft predictions beside them."""
    beta: float = score_setting(10.0, "Weight of the teacher's signal [default: {default:g}].", at_least(0))
    teacher_temperature: float = score_setting(
        0.03, "What the teacher's outputs are divided by; below 1 sharpens them [default: {default}].", POSITIVE
    )
    """On nodes, they stay as they are where sharpened ones would be worse on validation, as they are where the metric
    ranks (ROC-AUC, average precision)."""
    teacher_smoothing: float = score_setting(
        0.9, "How much of the teacher's answer at a node is its neighbours' [default: {default}].", SHARE_OR_NONE
    )
    """The teacher's probabilities are spread along edges, as personalised PageRank does, going on with this chance at
    every step. Where that is worse on validation, and with partitions, the teacher stays as it is. For tasks on nodes.
    """
    lambda_edges: float = score_setting(0.0, "λ1: L1 on edge scores [default: {default:g}; gebt 1e-4].", at_least(0))
    lambda_weights: float = score_setting(0.0, "λ2: L1 on weight scores [default: {default:g}].", at_least(0))
    decay_scores: bool = score_setting(False, "Whether weight decay touches scores [default: no; gebt yes].")
    clamp_scores: bool = score_setting(False, "Whether scores are kept in [0, 1].")
    score_epoch: str = score_setting(
        "best", "Whose scores decide: the best-validation epoch's or the last: best or last.", one_of("best", "last")
    )
    score_epochs: int | None = score_setting(
        60, "Epochs that a level's scores are trained, at most --epochs [default: {default}].", count()
    )
    """None, as the published presets have it, is as many as `epochs`."""


@dataclass(frozen=True)
class Pruning(Group):
    """What goes at a level."""

    axis: str = setting(
        "model", "What gets sparser from level to level: model, graph or joint.", one_of(*AXES), shown=True
    )
    prunable: tuple[str, ...] | None = score_setting(
        None,
        "What is pruned in your own model: a pattern of parameters' names (repeatable) "
        "[default: weight matrices of linear maps].",
        keyword="str | Sequence[str] | Callable[..., bool]",
    )
    balance: float = score_setting(
        0.75,
        "How much of the weights is divided among matrices: from nothing (0), all weights compete, to everything "
        "(1), each matrix ranks by itself [default: {default}; gebt 0].",
        from_to(0, 1),
    )
    """In proportion to the sums of the matrices' sides, so that no layer dies out."""
    degree_bonus: float = score_setting(
        2.0,
        "What ugs and ace add to the importance of an edge, over the root of the product of its ends' degrees; more "
        "where nodes have more than five neighbours on average [default: {default:g}].",
        at_least(0),
    )
    """Degrees count the node itself; with the bonus the last edges of a node stay longer. It is multiplied by the
    square of a fifth of the mean degree where that is above 1."""
    prune_model: float = score_setting(0.2, "Share of alive weights that goes per level [default: {default}].", SHARE)
    prune_graph: float = score_setting(0.05, "Share of alive edges that goes per level [default: {default}].", SHARE)
    fixed_model: float = score_setting(
        0.2, "Share of weights that goes at every level of the graph axis [default: {default}].", SHARE_OR_NONE
    )
    fixed_graph: float = score_setting(
        0.05, "Share of edges that goes at every level of the model axis [default: {default}].", SHARE_OR_NONE
    )
    structure: str | None = score_setting(
        None, "Prune whole hidden units, input features, or both, in place of single weights: units, features or "
        "units,features; tickets are then small dense models.", one_of("units", "features", "units,features"),
    )  # fmt: skip
    round_to: int = score_setting(
        1, "With --structure: widths are multiples of this, e.g. 8 [default: {default}].", from_to(1, MAX_WIDTH)
    )
    ignored: tuple[str, ...] | None = score_setting(
        None, "With --structure: a layer that keeps all its units, e.g. layer0 (repeatable).",
        keyword="str | Sequence[str]",
    )  # fmt: skip
    floors: tuple[str, ...] | None = score_setting(
        None, "With --structure: the share of a layer's units that always stays, e.g. layer1=0.25 (repeatable).",
        keyword="str | Sequence[str] | Mapping[str, float]",
    )  # fmt: skip
    ratios: tuple[str, ...] | None = score_setting(
        None, "With --structure: how much larger a share a layer keeps than others, where --balance divides weights "
        "among layers, e.g. layer1=2 (repeatable).", keyword="str | Sequence[str] | Mapping[str, float]",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("ignored", "floors", "ratios"):
            if self.structure is None and getattr(self, name):
                raise ConfigError(f"{name} is for structured pruning; add structure units or features")
        if self.structure is None and self.round_to != 1:
            raise ConfigError("round_to is for structured pruning; add structure units or features")
        for layer, share in by_layer("floors", self.floors).items():
            SHARE_OR_ALL(f"floors: {layer}", share)
        for layer, ratio in by_layer("ratios", self.ratios).items():
            POSITIVE(f"ratios: {layer}", ratio)


def by_layer(name: str, pairs: Sequence[str] | None) -> dict[str, float]:
    """What `layer1=0.25` says of each layer."""
    found = {}
    for pair in pairs or ():
        layer, _, number = pair.partition("=")
        try:
            found[layer.strip()] = float(number)
        except ValueError:
            raise ConfigError(f"{name} takes LAYER=NUMBER, e.g. layer1=0.25; found '{pair}'") from None
    return found


PUBLISHED: Mapping[str, Any] = {
    "signal": "labels", "teacher_temperature": 0.5, "teacher_smoothing": 0.0, "lambda_edges": 1e-4,
    "lambda_weights": 1e-4, "decay_scores": True, "score_epochs": None, "balance": 0.0, "degree_bonus": 0.0,
}  # fmt: skip
"""How UGS and the paper score and prune, which have no teacher; λ where they do not name the dataset."""


@dataclass(frozen=True)
class BackboneOptions(Group):
    """What every backbone has, the user's own too."""

    usual: ClassVar[Mapping[str, Any]] = {}
    """Defaults of any settings that are others with this backbone."""
    reads_edge_features: ClassVar[bool] = False
    """Whether it reads features of edges where the graph has them."""
    space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "lr": (1e-3, 3e-3, 1e-2, 3e-2), "weight_decay": (0.0, 5e-5, 5e-4, 5e-3), "hidden": (64, 128, 256, 512),
        "layers": (2, 3, 4, 6, 10), "norm": ("none", "layer", "batch"), "skip": ("none", "linear", "identity"),
        "output": ("conv", "linear"), "dropout": (0.2, 0.35, 0.5, 0.7), "input_dropout": (0.0, 0.3, 0.6),
    }  # fmt: skip
    """What `aceglt tune` tries, of the settings that the backbone has."""

    hidden: int = train_setting(512, "Hidden units [default: {default}; resgcn: 128].", from_to(1, MAX_WIDTH))

    @property
    def checkpoint_blocks(self) -> bool | None:
        """Whether activations are computed again in the gradient; None where a backbone cannot."""
        return None


@dataclass(frozen=True)
class LayerOptions(BackboneOptions):
    """What a stack of convolutions has; the defaults are the paper's two layers."""

    layers: int = train_setting(2, "Message-passing layers [default: {default}; resgcn 28].", from_to(1, MAX_LAYERS))
    output: str = train_setting(
        "conv", "What makes the outputs: conv, the last layer [default], or linear, a map after it.",
        one_of("conv", "linear"),
    )  # fmt: skip
    norm: str = train_setting(
        "none", "Normalisation of hidden layers: none [default], layer or batch.", one_of("none", "layer", "batch")
    )
    skip: str = train_setting(
        "none", "Skip connections: none [default], linear (a map of each layer's inputs) or identity.",
        one_of("none", "linear", "identity"),
    )  # fmt: skip
    """Identity is for hidden layers from the second on, whose widths are equal."""
    jumping: str = train_setting(
        "none", "What the output reads: the last hidden layer (none) [default], or all of them (cat).",
        one_of("none", "cat"),
    )  # fmt: skip
    dropout: float = train_setting(0.5, "Dropout of hidden layers [default: {default}; gat 0.6].", SHARE_OR_NONE)
    input_dropout: float = train_setting(0.0, "Dropout of features [default: {default:g}; gat 0.6].", SHARE_OR_NONE)
    bias: bool = train_setting(False, "Whether layers have a bias [default: gcn no, others yes].")


@dataclass(frozen=True)
class SageOptions(LayerOptions):
    bias: bool = with_default(LayerOptions, "bias", True)


@dataclass(frozen=True)
class GinOptions(LayerOptions):
    bias: bool = with_default(LayerOptions, "bias", True)


@dataclass(frozen=True)
class GatOptions(LayerOptions):
    """A learning rate of 0.01 costs a GAT two points of validation accuracy on CiteSeer."""

    usual: ClassVar[Mapping[str, Any]] = {"lr": 0.005}
    space: ClassVar[Mapping[str, Sequence[Any]]] = {**BackboneOptions.space, "hidden": (8, 16, 32, 64)}

    dropout: float = with_default(LayerOptions, "dropout", 0.6)
    """Of attention coefficients too."""
    input_dropout: float = with_default(LayerOptions, "input_dropout", 0.6)
    bias: bool = with_default(LayerOptions, "bias", True)
    heads: int = train_setting(
        8, "Heads of gat, each with the hidden units [default: {default}].", from_to(1, MAX_HEADS)
    )


@dataclass(frozen=True)
class ResgcnOptions(BackboneOptions):
    usual: ClassVar[Mapping[str, Any]] = {"hidden": 128}
    space: ClassVar[Mapping[str, Sequence[Any]]] = {
        **BackboneOptions.space, "hidden": (32, 64, 128), "layers": (3, 7, 14, 28),
    }  # fmt: skip
    reads_edge_features: ClassVar[bool] = True

    layers: int = with_default(LayerOptions, "layers", 28)
    checkpoint_blocks: bool = train_setting(
        False, "Whether resgcn computes its layers again in the gradient instead of keeping them."
    )


BACKBONE_OPTIONS: dict[str, type[BackboneOptions]] = {
    "gcn": LayerOptions, "sage": SageOptions, "gin": GinOptions, "gat": GatOptions, "resgcn": ResgcnOptions,
}  # fmt: skip


@dataclass(frozen=True)
class TaskOptions(Group):
    """What a task adds to the settings."""

    @classmethod
    def usual(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults of any settings that are others with this task, where these are given."""
        return {}

    @classmethod
    def check_choices(cls, made: Mapping[str, Any]) -> None:
        """Raise ConfigError where choices, of the user or the preset, have no meaning for this task."""

    def check(self, signal: str, loss: str | None, metric: str | None, partition_by: str) -> None:
        """Raise ConfigError where the signal, the user's own loss, a metric or a kind of parts does not go with these
        options."""


def _is_split(value: str) -> bool:
    found = re.fullmatch(r"given|[0-9]{1,6}|random:[0-9]{1,18}(?::(0?\.[0-9]{1,9}),(0?\.[0-9]{1,9}))?", value)
    shares = [float(share) for share in found.groups() if share] if found else [0.0]
    return all(share > 0 for share in shares) and sum(shares) < 1


@dataclass(frozen=True)
class NodeOptions(TaskOptions):
    split: str = setting(
        "given", "Masks: given with the data; a number from 0 where it has several; random:SEED (20 per class, 500, "
        "1000 nodes); or random:SEED:0.6,0.2 (shares for training and validation), which data without masks get.",
        must_be("given, a number, random:SEED or random:SEED:0.6,0.2 (shares that leave a rest)", _is_split),
        shown=True, keyword="str | int",
    )  # fmt: skip


@dataclass(frozen=True)
class LinkOptions(TaskOptions):
    objective: str = setting(
        "bce", "What link prediction trains: bce [default] or infoclust (the paper's setting).",
        one_of("bce", "infoclust"),
    )  # fmt: skip
    """Cross-entropy against sampled non-edges, or Graph InfoClust."""
    edge_split: str = setting(
        "random",
        "Edges that link prediction holds out: random [default] or connected (the training graph stays so).",
        one_of("random", "connected"),
    )
    embedding: int = train_setting(
        64, "Width of link prediction's embeddings [default: {default}; infoclust 16].", from_to(1, MAX_WIDTH)
    )

    @classmethod
    def usual(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Chosen on validation: weight decay keeps embeddings from growing, and what scores gain in node classification
        they lose in link prediction."""
        if given.get("objective") == "infoclust":
            return {**PUBLISHED, "weight_decay": 0.0, "lr": 1e-3, "embedding": 16}
        return {**PUBLISHED, "weight_decay": 0.0, "lr": 1e-2, "signal": "teacher", "teacher_temperature": 1.0}

    @classmethod
    def check_choices(cls, made: Mapping[str, Any]) -> None:
        if made.get("teacher_smoothing"):
            raise ConfigError(f"teacher_smoothing {made['teacher_smoothing']} is for tasks on nodes, not link")
        if made.get("split", NodeOptions.split) != NodeOptions.split:
            raise ConfigError(f"split '{made['split']}' is of nodes; task link splits edges, see edge_split")
        if made.get("objective") == "infoclust" and made.get("norm") == "batch":
            raise ConfigError(
                "objective 'infoclust' trains in evaluation mode, in which norm 'batch' gathers no statistics; use "
                "norm 'layer' or 'none'"
            )

    def check(self, signal: str, loss: str | None, metric: str | None, partition_by: str) -> None:
        if partition_by == "neighbours":
            raise ConfigError("partition_by 'neighbours' is for tasks on nodes; task link has 'random' and 'clusters'")
        if metric in METRICS:
            raise ConfigError(f"metric '{metric}' is of nodes; task link has ROC-AUC, or the dataset's Hits@K")
        if self.objective == "infoclust" and signal == "teacher":
            raise ConfigError("signal 'teacher' has nothing to teach with objective 'infoclust'; use signal 'labels'")
        if self.objective == "infoclust" and loss is not None:
            raise ConfigError("objective 'infoclust' has a loss of its own; use objective 'bce' with yours")


TASK_OPTIONS: dict[str, type[TaskOptions]] = {"node": NodeOptions, "inductive": NodeOptions, "link": LinkOptions}
