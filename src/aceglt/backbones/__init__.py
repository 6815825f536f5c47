"""The backbones by name."""

from __future__ import annotations

from collections.abc import Callable

from aceglt.backbones.base import Backbone, Dropout, Layout, Params
from aceglt.backbones.gat import GAT
from aceglt.backbones.gcn import GCN
from aceglt.backbones.gin import GIN

BACKBONES: dict[str, Callable[[int, int, int], Backbone]] = {"gcn": GCN, "gin": GIN, "gat": GAT}


def build(name: str, in_features: int, out_features: int, hidden: int = 512) -> Backbone:
    """The backbone of this name (one of `config.BACKBONES`) for these sizes."""
    return BACKBONES[name](in_features, out_features, hidden)


__all__ = ["BACKBONES", "GAT", "GCN", "GIN", "Backbone", "Dropout", "Layout", "Params", "build"]
