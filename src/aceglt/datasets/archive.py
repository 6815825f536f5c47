"""Read and write `.npz` files without trusting them."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from aceglt.errors import AcegltError, DataError, is_shortage
from aceglt.files import check_claim, write_atomic

Array = npt.NDArray[Any]

RATIO = 128  # of what a graph takes in memory to its packed file
_HEADER = 1 << 16  # bytes of an array's header; numpy writes some 128


def read_arrays(path: Path, costs: Mapping[str, int]) -> dict[str, Array]:
    """Return those arrays of `path` that `costs` names; each is writable and in native byte order.

    `costs` are the bytes that an element takes by the time a problem is made of it. Nothing is unpickled, and nothing
    is allocated before the declared sizes agree with each other and with what a file of this size may take. Raises
    `DataError` for whatever is wrong with the file.
    """
    if os.path.isdir(path):
        raise DataError(f"{path}: is a folder, expected an .npz file")
    if not os.path.isfile(path):  # unlike Path's, it never raises
        raise DataError(f"{path}: no such file")
    arrays: dict[str, Array] = {}
    with _reported(f"{path}", "a readable .npz file"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.comment:  # a wrong length hides the members that follow
                raise DataError(f"{path}: array {member.filename} has a comment, which no .npz file has")
            archive.open(member).close()  # raises where the two places of its name differ
        members = {info.filename: info for info in archive.infolist()}
        found = {name: members[f"{name}.npy"] for name in costs if f"{name}.npy" in members}
        needed = sum(costs[name] * _elements(archive, info, f"{path}: array {name}") for name, info in found.items())
        check_claim(needed, path.stat().st_size, f"{path}", DataError, RATIO)
        for name, info in found.items():
            arrays[name] = _read_member(archive, info, f"{path}: array {name}")
    return arrays


def read_array(path: Path) -> Array:
    """The array of an `.npy` file, which must be as long as its header says."""
    with _reported(f"{path}", "a readable .npy file"), open(path, "rb") as stream:
        shape, fortran_order, dtype = _read_header(stream, f"{path}")
        found, declared = path.stat().st_size - stream.tell(), math.prod(shape) * dtype.itemsize
        if found != declared:
            raise DataError(f"{path}: found {found} bytes, expected {declared} for {dtype} {list(shape)}")
        array = np.fromfile(stream, dtype=dtype)
        return array.reshape(shape, order="F" if fortran_order else "C").astype(dtype.newbyteorder("="), copy=False)


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a compressed `.npz` whose bytes depend on the arrays only; `path` is replaced in one step."""
    content = io.BytesIO()
    try:
        with zipfile.ZipFile(content, "w") as archive:
            for name, array in arrays.items():
                _write_member(archive, name, array)
        write_atomic(path, content.getvalue())
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error


@contextmanager
def _reported(where: str, expected: str) -> Iterator[None]:
    """Turn any failure into a `DataError`.

    On damaged input zipfile, zlib and numpy's header parser raise about a dozen unrelated exceptions.
    """
    try:
        yield
    except AcegltError:
        raise
    except Exception as error:
        if is_shortage(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(f"{where}: found {reason[:200]}, expected {expected}") from error


def _elements(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> int:
    """How many there are by the header, which must agree with the declared sizes."""
    _check_member(archive, info, where)
    with _reported(where, "an undamaged array"), archive.open(info) as stream:
        shape, _, dtype = _read_header(stream, where)
        if any(size < 0 for size in shape):
            raise DataError(f"{where}: found shape {list(shape)}, expected sizes of at least 0")
        count = math.prod(shape)
        found, declared = info.file_size - stream.tell(), count * dtype.itemsize
        if found != declared:
            raise DataError(f"{where}: found {found} bytes, expected {declared} for {dtype} {list(shape)}")
        return count


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> Array:
    with _reported(where, "an undamaged array"), archive.open(info) as stream:
        shape, fortran_order, dtype = _read_header(stream, where)
        array = np.empty(math.prod(shape), dtype=dtype)
        _fill(stream, array, where)
        # A reshape to Fortran order is a view: the caller decides about copies.
        array = array.reshape(shape, order="F" if fortran_order else "C")
        return array.astype(dtype.newbyteorder("="), copy=False)


def _check_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> None:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{where}: found compression type {info.compress_type}, expected stored or deflated")
    held = os.fstat(archive.fp.fileno()).st_size if archive.fp else 0
    if info.compress_size > held:
        raise DataError(f"{where}: found {info.compress_size} compressed bytes, expected at most the file's {held}")
    # A type of many bytes, or one of none, makes elements no measure of what is read.
    check_claim(info.file_size, info.compress_size, where, DataError, RATIO)


def _read_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise DataError(f"{where}: found .npy version {version}, expected 1.0 or 2.0")
    size = stream.read(2 if version == (1, 0) else 4)
    if (length := int.from_bytes(size, "little")) > _HEADER:  # which would be allocated
        raise DataError(f"{where}: found a header of {length} bytes, expected at most {_HEADER}")
    shape, fortran_order, dtype = readers[version](io.BytesIO(size + stream.read(length)))
    if dtype.hasobject or dtype.names is not None:
        raise DataError(f"{where}: found dtype {dtype}, expected plain numbers (objects are never unpickled)")
    return shape, fortran_order, dtype


def _fill(stream: IO[bytes], array: Array, where: str) -> None:
    """Read exactly `array` from `stream`, to its end: only there the checksum is compared."""
    view, position = memoryview(array.view(np.uint8)), 0  # type: ignore[arg-type]
    while chunk := stream.read(1 << 20):
        view[position : position + len(chunk)] = chunk
        position += len(chunk)
    if position != len(view):
        raise DataError(f"{where}: found {position} bytes, expected {len(view)}: the file is truncated")


def _write_member(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # or the bytes would depend on the operating system
    with archive.open(info, "w", force_zip64=True) as stream:
        np.lib.format.write_array(stream, np.asarray(array, order="C"), allow_pickle=False)
