"""The keywords of `aceglt.search`, for type checkers. Made by tools/write_keywords.py: do not edit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

class Settings(TypedDict, total=False):
    """Settings of a search; None counts as not given."""

    dataset: str | None
    backbone: Any
    method: Any
    method_options: Mapping[str, Any] | None
    task: str | None
    directed: bool | None
    seeds: int | Sequence[int] | None
    test: bool | None
    loss: str | Callable[..., Any] | None
    metric: str | Callable[..., Any] | None
    levels: int | None
    target_model: float | None
    target_graph: float | None
    patience: int | None
    epochs: int | None
    early_stopping: int | None
    lr: float | None
    weight_decay: float | None
    precision: str | None
    deterministic: bool | None
    partitions: int | None
    partition_by: str | None
    neighbours: int | None
    drop_edge: float | None
    rewind_epoch: int | None
    parts_per_step: int | None
    signal: str | None
    beta: float | None
    teacher_temperature: float | None
    teacher_smoothing: float | None
    lambda_edges: float | None
    lambda_weights: float | None
    decay_scores: bool | None
    clamp_scores: bool | None
    score_epoch: str | None
    score_epochs: int | None
    axis: str | None
    prunable: str | Sequence[str] | Callable[..., bool] | None
    balance: float | None
    degree_bonus: float | None
    prune_model: float | None
    prune_graph: float | None
    fixed_model: float | None
    fixed_graph: float | None
    structure: str | None
    round_to: int | None
    ignored: str | Sequence[str] | None
    floors: str | Sequence[str] | Mapping[str, float] | None
    ratios: str | Sequence[str] | Mapping[str, float] | None
    hidden: int | None
    layers: int | None
    output: str | None
    norm: str | None
    skip: str | None
    jumping: str | None
    dropout: float | None
    input_dropout: float | None
    bias: bool | None
    heads: int | None
    checkpoint_blocks: bool | None
    split: str | int | None
    objective: str | None
    edge_split: str | None
    embedding: int | None
