"""The options of each backbone; a new one is a class here and a row of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from aceglt.config.fields import TRAIN, Group, from_to, setting

MAX_WIDTH = 1 << 20
"""Of a layer; more is a slip of the hand, and would only be found out when memory ends."""
MAX_LAYERS = 1000


@dataclass(frozen=True)
class BackboneOptions(Group):
    """What gcn and gin have, and the user's own."""

    usual: ClassVar[Mapping[str, Any]] = {}
    """Defaults of any settings that are others with this backbone."""
    reads_edge_features: ClassVar[bool] = False
    """Whether it reads features of edges where the graph has them."""

    hidden: int = setting(512, "Hidden units [default: {default}; resgcn: 128].", from_to(1, MAX_WIDTH), TRAIN)

    @property
    def checkpoint_blocks(self) -> bool | None:
        """Whether activations are computed again in the gradient; None where a backbone cannot."""
        return None


@dataclass(frozen=True)
class GatOptions(BackboneOptions):
    """A learning rate of 0.01 costs a GAT two points of validation accuracy on CiteSeer."""

    usual: ClassVar[Mapping[str, Any]] = {"lr": 0.005}


@dataclass(frozen=True)
class ResgcnOptions(BackboneOptions):
    usual: ClassVar[Mapping[str, Any]] = {"hidden": 128}
    reads_edge_features: ClassVar[bool] = True

    layers: int = setting(28, "Layers of resgcn [default: {default}].", from_to(1, MAX_LAYERS), TRAIN)
    checkpoint_blocks: bool = setting(
        False, "Whether resgcn computes its layers again in the gradient instead of keeping them.", None, TRAIN,
        options=["--checkpoint-blocks/--no-checkpoint-blocks"],
    )  # fmt: skip


BACKBONE_OPTIONS: dict[str, type[BackboneOptions]] = {
    "gcn": BackboneOptions,
    "gin": BackboneOptions,
    "gat": GatOptions,
    "resgcn": ResgcnOptions,
}
