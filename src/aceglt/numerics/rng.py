"""Randomness without state.

Every draw is a hash of (key, counter), and a key is a hash of (seed, level, purpose …). So a run draws the same numbers
whether it is trained alone, in a batch, after a resume, on the CPU or on a GPU, and no generator has to be saved.
The hash is the output function of SplitMix64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor

FOLD = 0x5851F42D4C957F2D
GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number
MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_WORD = (1 << 64) - 1
GLOBAL_STATE = RLock()
"""Held by the thread that may change what torch has once per process: its generators and its modes."""


def keys(seeds: Sequence[int], *purpose: int | str, device: torch.device | str = "cpu") -> Tensor:
    """One key per run, [S] int64, for the stated purpose."""
    return torch.tensor([_digest(seed, *purpose) for seed in seeds], dtype=torch.int64, device=device)


def fold(key: Tensor, value: int | Tensor) -> Tensor:
    """New keys from old ones and a number (an epoch, a layer), on the device and without a host synchronisation."""
    if not key.is_cuda:  # a few numbers, for which the interpreter takes a tenth of the time of torch's operations
        step = (int(value) + 1) * FOLD
        return torch.tensor([_mixed(number + step) for number in key.tolist()], dtype=torch.int64)
    return _mix(key + ((value + 1) * FOLD if isinstance(value, Tensor) else _signed((value + 1) * FOLD)))


def uniform(key: Tensor, n: int) -> Tensor:
    """[S, n] float64, uniform on the open interval (0, 1)."""
    return _to_unit(_bits(key, n))


def uniform_at(key: Tensor, index: Tensor) -> Tensor:
    """[S, k] the elements `index` [k] of what `uniform` draws, without the others; where the index is."""
    return _to_unit(_mix((index + 1) * GOLDEN + key.to(index.device).unsqueeze(1)))


def gumbel(key: Tensor, n: int) -> Tensor:
    """[S, n] float64, standard Gumbel."""
    return uniform(key, n).log_().neg_().log_().neg_()


def permutation(key: Tensor, n: int) -> Tensor:
    """[S, n] int64, each run's own order of 0 … n - 1."""
    return uniform(key, n).argsort(dim=1)


def keep_mask(key: Tensor, n: int, drop: float, dtype: torch.dtype = torch.bool, rows: Tensor | None = None) -> Tensor:
    """[S, n] each True (or 1) with probability 1 - drop, to within 2^-16. Four elements share one hash.

    With rows [k], [S, k, n]: those of what is drawn for a matrix with rows of n elements, without the others.
    Products with a floating-point mask are twenty times as fast on a CPU as with a boolean one.
    """
    if rows is None:
        lanes = _bits(key, (n + 3) // 4).view(torch.int16)[:, :n]
    elif n % 4 == 0:
        words = rows.unsqueeze(1) * (n // 4) + torch.arange(1, n // 4 + 1, device=key.device)
        lanes = _mix(words.flatten() * GOLDEN + key.unsqueeze(1)).view(torch.int16).view(len(key), len(rows), n)
    else:  # rows do not begin with a hash
        whole = keep_mask(key, (int(rows.max()) + 1) * n if len(rows) else 0, drop, dtype)
        return whole.view(len(key), -1, n)[:, rows]
    return torch.ge(lanes, threshold(drop), out=torch.empty(lanes.shape, dtype=dtype, device=lanes.device))


def threshold(drop: float) -> int:
    """What a 16-bit draw, from -32768 on, must reach for its element to stay."""
    return min(round(drop * 65536), 65535) - 32768


@contextmanager
def seeded(key: int, device: torch.device) -> Iterator[None]:
    """Inside, torch's own generators draw what this key says; for code of others, which draws from them.

    They are one for the whole process, so other threads wait.
    """
    cuda = device.type == "cuda"
    with GLOBAL_STATE, torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(key)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(key)
        yield


def _to_unit(bits: Tensor) -> Tensor:
    mantissa = (bits >> 12) & ((1 << 52) - 1)
    return (mantissa.to(torch.float64) + 0.5) * 2.0**-52


def _digest(*parts: int | str) -> int:
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _signed(value: int) -> int:
    """A number modulo 2^64, as torch's int64 holds it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _bits(key: Tensor, n: int) -> Tensor:
    """[S, n] int64, uniform."""
    counter = torch.arange(1, n + 1, dtype=torch.int64, device=key.device) * GOLDEN
    return _mix(counter + key.unsqueeze(1))


def _mixed(x: int) -> int:
    """`_mix` of a number modulo 2^64."""
    x &= _WORD
    x = (x ^ (x >> 30)) * (MIX_1 & _WORD) & _WORD
    x = (x ^ (x >> 27)) * (MIX_2 & _WORD) & _WORD
    return _signed(x ^ (x >> 31))


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser. torch shifts signed numbers arithmetically, hence the bit masks."""
    x = x ^ ((x >> 30) & 0x3FFFFFFFF)
    x *= MIX_1
    x ^= (x >> 27) & 0x1FFFFFFFFF
    x *= MIX_2
    x ^= (x >> 31) & 0x1FFFFFFFF
    return x
