"""Safetensors files with a checked payload."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from aceglt.errors import AcegltError, is_shortage
from aceglt.files import VARIABLE, parse_json, text_bytes, write_atomic


def write_tensors(
    path: Path, kind: str, version: int, payload: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """A safetensors file whose metadata hold the kind, a format version, a JSON payload and a digest of everything."""
    text, plain, checksum = _ready(payload, tensors)
    metadata = {"kind": kind, "format": str(version), "payload": text, "sha256": checksum}
    write_atomic(path, _sorted_header(save(plain, metadata)))


def content_digest(payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A digest of everything, as a file of it has."""
    return _ready(payload, tensors)[2]


def _ready(payload: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor], str]:
    text = json.dumps(payload, allow_nan=False)
    plain: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        storage = own.untyped_storage().data_ptr()
        plain[name] = own.clone() if storage in storages else own  # safetensors writes none that share memory
        storages.add(storage)
    return text, plain, _digest(text, plain)


def _sorted_header(content: bytes) -> bytes:
    """The same safetensors file with its header in a fixed order: equal content gives equal bytes."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors start at a multiple of 8 bytes
    return len(header).to_bytes(8, "little") + header + content[end:]


def read_tensors(
    path: Path, kind: str, version: int, error: type[AcegltError]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what `write_tensors` wrote in this or an earlier version, which the payload has as its `format`.

    Anything else raises `error` with one line that says what is wrong.
    """
    if not path.is_file():
        other = "is a folder; name the file in it" if path.is_dir() else "not a regular file"
        raise error(f"{path}: {other if os.path.lexists(path) else 'no such file'}")
    try:
        with open(path, "rb") as file_start:
            header = file_start.read(8)
            if header.startswith(b"PK\x03\x04"):  # a length of at least 64 MiB
                raise ValueError("it is a zip archive, such as an .npz file")
            if int.from_bytes(header, "little") > os.path.getsize(path):
                raise ValueError("it does not begin as a safetensors file does")
            if int.from_bytes(header, "little") > text_bytes():
                raise ValueError(f"its header is larger than {text_bytes() >> 20} MiB; {VARIABLE} allows more")
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            # Copies: tensors of safetensors are views of the file, which others may change or cut short.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, LookupError, AttributeError) as problem:
        if is_shortage(problem):
            raise MemoryError(str(problem)) from None
        raise error(f"{path}: not a readable {kind} file ({_first_line(problem)})") from None
    if metadata.get("kind") != kind:
        raise error(f"{path}: not an aceglt {kind} file")
    known = [str(number + 1) for number in range(version)]
    if metadata.get("format") not in known:
        raise error(
            f"{path}: format {metadata.get('format')!r} of {kind} files is not known to this version, which reads "
            f"{' and '.join(known)}; install the aceglt that wrote it"
        )
    text = metadata.get("payload", "")
    if metadata.get("sha256") != _digest(text, tensors):
        raise error(f"{path}: damaged (the checksum does not match); restore it from a copy or make it again")
    try:
        payload = parse_json(text)
    except ValueError as problem:
        raise error(f"{path}: its payload is not JSON ({_first_line(problem)})") from None
    if not isinstance(payload, dict):
        raise error(f"{path}: its payload is not a JSON object")
    return {**payload, "format": int(metadata["format"])}, tensors


def pack(mask: Tensor) -> Tensor:
    """A boolean tensor [S, n] as bits, [S, ⌈n/8⌉] uint8."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy(), axis=1, bitorder="little"))


def unpack(bits: Tensor, n: int) -> Tensor:
    """The inverse of `pack`. Raises ValueError where `bits` are not n bits per row."""
    if bits.dtype != torch.uint8 or bits.dim() != 2 or bits.shape[1] != (n + 7) // 8:
        raise ValueError(f"a mask of {n} bits cannot be read from {bits.dtype} of shape {list(bits.shape)}")
    return torch.from_numpy(np.unpackbits(bits.numpy(), axis=1, count=n, bitorder="little")).bool()


def pack_ascending(numbers: Tensor) -> Tensor:
    """Different whole numbers [n] in ascending order, from 0 up, as the gaps between them: seven bits to a byte, the
    lowest first, and the eighth where more follow (LEB128)."""
    gaps = np.diff(numbers.cpu().numpy(), prepend=-1) - 1
    parts, more = [gaps], gaps >> 7
    while more.any():
        parts.append(more)
        more = more >> 7
    rest = np.stack(parts, axis=1)  # [n, bytes]: what is left of a gap from each byte on
    there = rest > 0
    there[:, 0] = True
    follows = np.concatenate([there[:, 1:], np.zeros((len(gaps), 1), bool)], axis=1)
    return torch.from_numpy(((rest & 127) | (follows << 7)).astype(np.uint8)[there])


def unpack_ascending(packed: Tensor, below: int) -> Tensor:
    """The inverse of `pack_ascending`, int64. Raises ValueError where that is not numbers below `below`."""
    if packed.dtype != torch.uint8 or packed.dim() != 1:
        raise ValueError(f"gaps cannot be read from {packed.dtype} of shape {list(packed.shape)}")
    if not len(packed):
        return torch.zeros(0, dtype=torch.int64)
    data = packed.numpy()
    first = np.flatnonzero(np.concatenate([[True], data[:-1] < 128]))
    place = np.arange(len(data)) - np.repeat(first, np.diff(first, append=len(data)))
    if data[-1] > 127 or place.max() > 8:
        raise ValueError("the gaps between numbers are cut or too large")
    gaps = np.add.reduceat((data & 127).astype(np.int64) << (7 * place), first)
    if gaps.max() >= below or float(gaps.sum(dtype=np.float64)) + len(gaps) > 2**62:
        raise ValueError(f"numbers beyond {below}")
    numbers = np.cumsum(gaps + 1) - 1
    if numbers[-1] >= below:
        raise ValueError(f"numbers beyond {below}")
    return torch.from_numpy(numbers)


def deflate(packed: Tensor) -> Tensor:
    """Bytes [n] uint8 as zlib packs them."""
    return torch.frombuffer(bytearray(zlib.compress(packed.numpy().tobytes())), dtype=torch.uint8)


def inflate(deflated: Tensor, most: int) -> Tensor:
    """The inverse of `deflate`. Raises ValueError where it is not that, or more than so many bytes."""
    if deflated.dtype != torch.uint8 or deflated.dim() != 1:
        raise ValueError(f"packed bytes cannot be read from {deflated.dtype} of shape {list(deflated.shape)}")
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(deflated.numpy().tobytes(), most + 1)
    except zlib.error as problem:
        raise ValueError(f"packed bytes are damaged ({problem})") from None
    if len(content) > most or not unpacking.eof:
        raise ValueError(f"packed bytes are cut, or more than {most}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.zeros(0, dtype=torch.uint8)


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0][:200]
