"""What an epoch that is recorded on a GPU may not do."""

from __future__ import annotations

import torch
from samples import random_graph

from aceglt.backends.base import Place
from aceglt.backends.cuda import CudaPasses
from aceglt.backends.fields import Site
from aceglt.numerics.features import Features
from aceglt.numerics.kernels import PLAIN


class Uncut(Features):
    """Features that are cut from others at every look, which waits for the GPU."""

    @property
    def x(self) -> torch.Tensor:
        raise AssertionError("features are cut in an epoch")


def test_a_validation_pass_begins_without_cutting_features() -> None:
    graph, features = random_graph(), Uncut(torch.eye(12))
    site = Site(
        graph.batch(torch.ones(1, graph.num_edges, dtype=torch.bool), True, PLAIN), features, Place(graph, features)
    )
    outputs = torch.zeros(1, 12, 3)
    assert CudaPasses(None, site, site, PLAIN).beside(lambda: outputs)() is outputs  # type: ignore[arg-type]
