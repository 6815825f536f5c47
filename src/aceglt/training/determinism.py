"""Bit-identical results from run to run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from aceglt.errors import ConfigError


@contextmanager
def deterministic_torch(wanted: bool) -> Iterator[None]:
    """Hold torch to deterministic algorithms in this block, if wanted; where it has none, that is a ConfigError.

    Torch's own settings are put back afterwards. cuBLAS reads its setting when it is first used, so a process that has
    used it before must have set CUBLAS_WORKSPACE_CONFIG to :4096:8 or :16:8 itself.
    """
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as problem:
        if "deterministic" not in str(problem):
            raise
        raise ConfigError(f"this cannot be computed deterministically ({str(problem).splitlines()[0]})") from None
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
