"""The backbones by name."""

from __future__ import annotations

from aceglt.backbones.base import Backbone, Dropout, Layout, Params
from aceglt.backbones.gcn import GCN

BACKBONES: dict[str, type[GCN]] = {"gcn": GCN}

__all__ = ["BACKBONES", "GCN", "Backbone", "Dropout", "Layout", "Params"]
