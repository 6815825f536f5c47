"""Hostile variants of valid content: bytes, JSON, arrays, tensors, command lines."""

from __future__ import annotations

import copy
import io
import json
import math
import os
import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

SIZES = (0, 1, 2, 3, 7, 8, 255, 65_536, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 10**30)
NUMBERS = (*SIZES, *(-size for size in SIZES), 0.5, -0.5, 1e-300, 1e38, 1e308, math.nan, math.inf, -math.inf)
TEXTS = (
    "", " ", "x", "gcn", "ace", "link", "data", "random:0", "random:99999999999999999999", "true", "null", "0", "-1",
    "1e999", "nan", "../../../etc/passwd", "/etc/passwd", "/dev/zero", "a/../b", "C:\\x", "\x00", "a\x00b",
    "\x1b[2J\x1b]0;x\x07", "\r\n", "\ud800", "\u202e", "𝟘", "é" * 40, "x" * 5000, "%s%n", "${HOME}",
    "$(touch hacked)", "`touch hacked`", "os:system", "builtins:eval", "a:b", "..:..", "<script>alert(1)</script>",
    "</script>", "<!--", "'\"><img src=x onerror=alert(1)>", "[bold]x[/bold]", "[/]", "__class__", "__init__", "format",
)  # fmt: skip
NESTED = ([], {}, [[]], {"": None}, [None], [0] * 50, {"a": {"b": [1]}}, ["x", 1, None, True], [1e308, 1e308])


BOMB = b"bomb"
"""What stands for a file that is too large to be drawn and shown begins with it."""


class Attack:
    """Unpickled, it would run a command."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch hacked",)


def values() -> st.SearchStrategy[Any]:
    """Anything that JSON can say."""
    plain = st.one_of(
        st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.sampled_from(NESTED)
    )
    return st.one_of(plain, st.integers(), st.floats(), st.text(max_size=20), st.lists(plain, max_size=5))


@st.composite
def bytes_of(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with bits flipped, spans cut out, doubled, zeroed or replaced, numbers overwritten, or cut short."""
    for _ in range(draw(st.integers(1, 4))):
        if not content:
            break
        start = draw(st.integers(0, len(content) - 1))
        end = min(len(content), start + draw(st.sampled_from([1, 2, 4, 8, 16, 64, 1000])))
        content = content[:start] + draw(_spans(content, start, end)) + content[end:]
        if draw(st.integers(0, 9)) == 0:
            content = content[:start]
    return content


def _spans(content: bytes, start: int, end: int) -> st.SearchStrategy[bytes]:
    span = content[start:end]
    flipped = st.integers(0, 7).map(lambda bit: bytes([span[0] ^ 1 << bit]) + span[1:])
    number = st.sampled_from(SIZES[:-1]).map(lambda size: (size % 2**64).to_bytes(8, "little")[: len(span)])
    digits = st.sampled_from([b"0", b"-1", b"99999999999999999999", b"nan", b"1e999", b",", b"\n", b'"', b"\xff"])
    return st.one_of(
        flipped, number, digits, st.sampled_from([b"", span + span, bytes(len(span))]), st.binary(max_size=8)
    )


@st.composite
def json_of(draw: st.DrawFn, valid: Any) -> Any:
    """The tree with some of its values replaced, removed, doubled, wrapped or renamed."""
    tree = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(tree))
        if not places:
            break
        parent, key = draw(st.sampled_from(places))
        change = draw(st.sampled_from(["replace"] * 4 + ["remove", "wrap", "rename", "double"]))
        if change == "replace":
            parent[key] = copy.deepcopy(draw(values()))
        elif change == "wrap":
            parent[key] = [parent[key]]
        elif change == "remove":
            del parent[key]
        elif isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        else:
            parent[draw(st.sampled_from(TEXTS))] = parent.pop(key) if change == "rename" else copy.deepcopy(parent[key])
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


@st.composite
def json_text_of(draw: st.DrawFn, valid: Any) -> bytes:
    """A JSON file: a changed tree, a name given twice, or changed bytes."""
    text = json.dumps(valid, indent=1)
    kind = draw(st.sampled_from(["tree"] * 5 + ["twice", "bytes", "whole"]))
    if kind == "tree":
        return json.dumps(draw(json_of(valid))).encode()
    if kind == "twice":
        name = draw(st.sampled_from(sorted(valid)))
        return f"{{{json.dumps(name)}: {json.dumps(draw(values()))}, {text.lstrip()[1:]}".encode()
    if kind == "bytes":
        return draw(bytes_of(text.encode()))
    return draw(
        st.sampled_from([b"", b"[]", b"{}", b"null", b"[" * 100_000, b'{"a":' * 9999, b"9" * 5000, b"\xff\xfe{}"])
    )


@st.composite
def array_of(draw: st.DrawFn, valid: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with another type, shape or values."""
    change = draw(st.sampled_from(["type", "shape", "value", "value", "object", "empty"]))
    if change == "type":
        kinds = ["?", "i1", "u1", "i2", "u8", "i8", ">i8", "f2", "f4", ">f8", "g", "c8", "S3", "U3", "M8[s]", "V4"]
        with np.errstate(all="ignore"):
            return valid.astype(draw(st.sampled_from(kinds)))
    if change == "shape":
        shapes = [
            valid.T,
            valid.reshape(-1),
            valid[None],
            valid[:-1],
            valid[..., :-1],
            valid[:0],
            np.asfortranarray(valid),
        ]
        return draw(st.sampled_from([*shapes, np.concatenate([valid, valid]), np.zeros((0, 5)), np.zeros(())]))
    if change == "object":
        return np.array([Attack(), None], dtype=object)
    if change == "empty":
        return np.zeros(draw(st.sampled_from([(0,), (0, 0), (1, 0), (2, 0), (1,) * 30])))
    changed = valid.astype(draw(st.sampled_from([valid.dtype.str, "i8", "f8"]))).reshape(-1)
    for _ in range(draw(st.integers(1, 3)) if changed.size else 0):
        kind = (
            st.floats(width=32) if changed.dtype.kind == "f" else st.sampled_from([0, 1, -1, 5, 2**31, 2**62, -(2**63)])
        )
        with np.errstate(all="ignore"):
            changed[draw(st.integers(0, changed.size - 1))] = np.array(draw(kind)).astype(changed.dtype)
    return changed.reshape(valid.shape)


@st.composite
def npz_of(draw: st.DrawFn, valid: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """An .npz file with changed arrays, headers, names or bytes."""
    arrays = dict(valid)
    kind = draw(st.sampled_from(["arrays"] * 6 + ["names", "header", "header", "bytes", "bytes", "zeros", "bomb"]))
    name = draw(st.sampled_from(sorted(arrays)))
    if kind == "zeros":
        return _with_zeros(frozenset(arrays), name, draw(st.sampled_from(LARGE)), arrays)
    if kind == "bytes":
        return draw(bytes_of(zipped({n: npy(a) for n, a in arrays.items()})))
    if kind == "arrays":
        for changed in draw(st.lists(st.sampled_from(sorted(arrays)), min_size=1, max_size=2, unique=True)):
            arrays[changed] = draw(array_of(arrays[changed]))
    if kind == "names":
        new = draw(
            st.sampled_from(["../../evil", "/etc/evil", "batch", "x_data", "x", "y" * 300, "edge_weight", "edge_attr"])
        )
        moved = arrays.pop(name) if draw(st.booleans()) else arrays[name]
        arrays[new] = moved
    members = {n: npy(a) for n, a in arrays.items()}
    if kind == "header":
        members[name] = draw(_headers(arrays[name]))
    if kind == "bomb":
        bomb = draw(st.sampled_from(sorted(BOMBS)))
        npz_bomb(bomb)  # here: making it takes longer than any reader may
        return bomb
    return zipped(members, draw(st.sampled_from([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])))


LARGE = ((4_000_000,), (2, 2_000_000), (12, 400_000), (30_000_000,), (2, 15_000_000), (15_000_000, 2))
_MADE: dict[Any, bytes] = {}


def _with_zeros(
    names: frozenset[str], name: str, shape: tuple[int, ...], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> bytes:
    """A small file that has zeros by the megabyte in one of its arrays; made once, as that takes a while."""
    key = names, name, shape
    if key not in _MADE:
        changed = {**arrays, name: np.zeros(shape, np.uint8)}
        _MADE[key] = zipped({n: npy(a) for n, a in changed.items()}, zipfile.ZIP_DEFLATED)
    return _MADE[key]


@st.composite
def _headers(draw: st.DrawFn, valid: np.ndarray[Any, Any]) -> bytes:
    """An .npy file whose header lies, and whose checksum is right."""
    dtype = draw(
        st.sampled_from([valid.dtype.str, "|O", "<f8", "<U99999999", "V9999999", "i,i", "|S0", "<M8[s]", "x" * 99])
    )
    shape = draw(st.lists(st.sampled_from([*SIZES, -1, True]), max_size=4).map(tuple))
    extra = draw(
        st.sampled_from(["", "'shape': (), ", "'x': 1, ", "'fortran_order': 2, ", "__import__('os'), ", "(" * 300])
    )
    text = f"{{{extra}'descr': {dtype!r}, 'fortran_order': {draw(st.booleans())}, 'shape': {shape}}}\n".encode()
    version = draw(st.sampled_from([b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x09"]))
    length = draw(st.sampled_from([len(text), 0, 60_000, 2**32 - 1]))
    return b"\x93NUMPY" + version + (length % 2**16).to_bytes(2, "little") + text + valid.tobytes()


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def zipped(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


_ZEROS: dict[str, tuple[Any, Any]] = {
    "x": ((12, 20_000_000), np.uint8),
    "thin x": ((12, 4_000), np.uint8),
    "edge_index": ((2, 60_000_000), np.uint8),
    "fewer edge_index": ((2, 4_000_000), np.uint8),
    "edge_attr": ((12, 10_000_000), np.uint8),
    "fewer edge_attr": ((12, 390_000), np.uint8),
    "edge_weight": (60_000_000, bool),
    "y": ((12, 10_000_000), bool),
    "train_mask": (100_000_000, bool),
    "wide x": ((12, 2), "V30000000"),
}
_SIZES = {f"x_shape {size}": size for size in (4096, 1 << 20, 1 << 31, 1 << 62)}
BOMBS = {BOMB + b" " + name.encode(): name for name in (*_ZEROS, *_SIZES)}


@cache
def npz_bomb(bomb: bytes) -> bytes:
    """A graph of 12 nodes with zeros by the megabyte, which deflate makes 1000 times smaller, or that claims many."""
    name, nodes = BOMBS[bomb], np.arange(12)
    masks = {f"{name}_mask": nodes // 2 % 3 == i for i, name in enumerate(("train", "val", "test"))}
    graph = {"x": np.ones((12, 2)), "edge_index": np.stack([nodes, (nodes + 1) % 12]), "y": nodes % 2, **masks}
    if name in _ZEROS:
        graph[name.split()[-1]] = np.zeros(*_ZEROS[name])
    else:
        del graph["x"]
        graph |= {"x_data": np.zeros(0), "x_indices": np.zeros(0, int), "x_indptr": np.zeros(13, int)}
        graph["x_shape"] = np.array([12, _SIZES[name]])
    return zipped({n: npy(a) for n, a in graph.items()}, zipfile.ZIP_DEFLATED)


def tensors_of(valid: Mapping[str, Tensor]) -> st.SearchStrategy[dict[str, Tensor]]:
    """The tensors with one of them changed, absent, or under another name."""

    def changed(name: str) -> st.SearchStrategy[dict[str, Tensor]]:
        rest = {other: tensor for other, tensor in valid.items() if other != name}
        kinds = [torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.bool]
        t = valid[name]
        others = [t[:-1], t[None], t.flatten(), torch.cat([t, t]), t.new_zeros(0), torch.zeros(()), *map(t.to, kinds)]
        if t.is_floating_point():
            others += [t.new_full(t.shape, number) for number in (float("nan"), float("inf"), torch.finfo(t.dtype).max)]
        else:
            others += [t.new_full(t.shape, 255), t.flip(0), t.flip(-1)]
        elsewhere = st.sampled_from(["", "../x", "soft", "edge_weight"]).map(lambda new: {**rest, new: t})
        return st.one_of(st.sampled_from(others).map(lambda new: {**rest, name: new}), st.just(rest), elsewhere)

    return st.sampled_from(sorted(valid)).flatmap(changed)


def words(options: Sequence[tuple[str, Sequence[str]]]) -> st.SearchStrategy[list[str]]:
    """Some of the options (name, good values), with good and bad values; no values means that it takes none."""

    def one(option: tuple[str, Sequence[str]]) -> st.SearchStrategy[list[str]]:
        name, good = option
        if not good:
            return st.just([name])
        bad = st.one_of(st.sampled_from(TEXTS), st.sampled_from(NUMBERS).map(str), st.text(max_size=8))
        return st.one_of(st.sampled_from(good), bad).map(lambda value: [name, value])

    chosen = st.lists(st.sampled_from(options).flatmap(one), max_size=5)
    return chosen.map(lambda parts: [word for part in parts for word in part])


def pickles() -> st.SearchStrategy[bytes]:
    """Pickles that would run something, and some that are merely odd."""
    attacks = [pickle.dumps(Attack(), protocol) for protocol in range(5)]
    named = [b"c%s\n(S'touch hacked'\ntR." % name for name in (b"os\nsystem", b"__builtin__\neval", b"builtins\nexec")]
    odd = [b"]" * 50 + b".", b"(lp0\n0.", b"c__builtin__\nlist\n)R.", b"cnumpy\nndarray\n(I9\ntR.", b"", b"."]
    return st.sampled_from([*attacks, *named, *odd])
