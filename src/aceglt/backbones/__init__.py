"""The backbones by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aceglt.backbones.base import Backbone, Dropout, Footprint, Layout, Params, Stage
from aceglt.backbones.gat import GAT
from aceglt.backbones.gcn import GCN
from aceglt.backbones.gin import GIN
from aceglt.backbones.resgcn import ResGCN
from aceglt.backbones.sage import SAGE
from aceglt.config.groups import BACKBONE_OPTIONS
from aceglt.config.own import built_in

BACKBONES: dict[str, Callable[..., Backbone]] = built_in("backbones", BACKBONE_OPTIONS)


def build(name: str, in_features: int, out_features: int, hidden: int = 512, **options: Any) -> Backbone:
    """The backbone of this name (one of `config.BACKBONES`) for these sizes; `options` are its own."""
    return BACKBONES[name](in_features, out_features, hidden, **options)


__all__ = [
    "BACKBONES", "GAT", "GCN", "GIN", "SAGE", "Backbone", "Dropout", "Footprint", "Layout", "Params", "ResGCN", "Stage",
    "build",
]  # fmt: skip
