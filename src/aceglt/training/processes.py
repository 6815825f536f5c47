"""Several processes that train one search together (`torchrun`): each takes its share of the parts, all end up alike.

Without `torch.distributed` there is one process, and every function here does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from aceglt.errors import ConfigError

T = TypeVar("T")


@contextmanager
def joined() -> Iterator[None]:
    """Inside, the processes that torchrun started know each other; nothing happens in a process of its own."""
    if _started() == 1 or dist.is_initialized():
        yield
        return
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    except (ValueError, RuntimeError) as problem:
        raise ConfigError(
            f"WORLD_SIZE is {_started()}, but the processes cannot meet ({str(problem).splitlines()[0]}); start them "
            "with torchrun, or unset WORLD_SIZE"
        ) from None
    try:
        yield
    finally:
        dist.destroy_process_group()


def leads() -> bool:
    """Whether this process is the only one or the first, the one that writes and shows; known before they meet."""
    return _started() == 1 or _number("RANK", 0) == 0


def _started() -> int:
    """How many processes torchrun says that it started."""
    return _number("WORLD_SIZE", 1)


def _number(name: str, default: int) -> int:
    """A variable that launchers set."""
    text = os.environ.get(name, str(default))
    if not (text.strip().isdecimal() and len(text) < 10) or (default and int(text) < default):
        raise ConfigError(f"the variable {name}, which torchrun sets, must be a whole number, found {text!r}; unset it")
    return int(text)


def device_number() -> int | None:
    """Which GPU of its machine this process takes; None if it is alone and may take any."""
    return _number("LOCAL_RANK", 0) if count() > 1 else None


def count() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def mine(items: Sequence[T]) -> Sequence[T]:
    """Every process's own share."""
    return items[dist.get_rank() :: count()] if count() > 1 else items


def add_up(tensors: Sequence[Tensor]) -> None:
    """Replace tensors of equal type by their sums over the processes; as one message."""
    if count() == 1:
        return
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    for tensor, total in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(total.view(tensor.shape))


def agreed(value: T) -> T:
    """What the first process has."""
    if count() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]
