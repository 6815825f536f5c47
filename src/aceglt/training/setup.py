"""What a configuration trains with: a backbone for the problem, the parts of its graph, a device, determinism."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

import torch

from aceglt.backbones import Backbone, build
from aceglt.config import Config
from aceglt.config.own import NOTHING, Own, is_own, missing
from aceglt.errors import ConfigError
from aceglt.numerics import rng
from aceglt.problems.base import Problem
from aceglt.training import processes
from aceglt.training.partitions import Parts


def build_backbone(config: Config, problem: Problem, own: Own = NOTHING) -> Backbone:
    """The backbone for the problem, with the aids at scale around it that are asked for."""
    backbone = _plain_backbone(config, problem, own)
    backbone = backbone if config.pruning.structure is None else backbone.with_whole_units()
    return backbone.computing_in(torch.bfloat16) if config.training.precision == "bfloat16" else backbone


def _plain_backbone(config: Config, problem: Problem, own: Own) -> Backbone:
    """For the problem's sizes; the user's own is tried out on its graph."""
    sizes = problem.x.shape[1], problem.out_features
    given: Any = own.backbone
    if isinstance(given, type) and issubclass(given, Backbone):  # for all runs at once, as the built-in ones
        make: Callable[..., Backbone] = given
        return make(*sizes, config.backbone_options.hidden)
    if own.backbone is not None:
        from aceglt.backbones.module import ModuleBackbone

        prunable = own.prunable or config.pruning.prunable
        return ModuleBackbone(own.backbone, problem.graph, problem.x, problem.out_features, prunable)
    if is_own(config.backbone):
        raise missing("backbone", config.backbone)
    options = asdict(config.backbone_options)
    if config.backbone_options.reads_edge_features and problem.graph.edge_attr is not None:
        options["edge_features"] = problem.graph.edge_attr.shape[1]
    return build(config.backbone, *sizes, **options)


def build_parts(config: Config) -> Parts:
    """How the configuration cuts a graph."""
    training = config.training
    return Parts(training.partitions, training.parts_per_step, training.partition_by, training.neighbours)


def pick_device(name: str) -> torch.device:
    """A device by name; "auto" is a GPU if there is one. Of several processes, each takes a GPU of its own."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and (number := processes.device_number()) is not None:
        name = f"cuda:{number}"
        torch.cuda.set_device(number)
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device '{name}' cannot be used here: torch sees no GPU; use cpu or auto")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device '{name}' cannot be used here; use cpu, cuda, cuda:N or auto") from None
    try:
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"{device.type} is not supported")
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise ConfigError(f"device '{name}' cannot be used here ({reason}); try cpu, cuda or auto") from None
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # kernels and recordings go to the current one
    return device


@contextmanager
def usual_torch() -> Iterator[None]:
    """Torch as trainings need it, whatever modes the caller is in: gradients, no autocast, tensors on the CPU.

    Raises ConfigError where the default type of number is neither float32 nor float64.
    """
    dtype = torch.get_default_dtype()
    if dtype not in (torch.float32, torch.float64):
        raise ConfigError(f"torch's default type is {dtype}; trainings need float32 or float64: set_default_dtype")
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


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
    with rng.GLOBAL_STATE:  # the mode is the process's: another thread's search waits
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
