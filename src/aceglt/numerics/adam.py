"""torch's own Adam, without torch.compile."""

from __future__ import annotations

from inspect import unwrap

import torch


class TorchAdam(torch.optim.Adam):
    """torch's, but for wrappers that import torch.compile's machinery, so that it leaves these methods alone: that
    takes a second, on some machines four, and nothing here is compiled by it."""

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
