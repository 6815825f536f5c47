"""Read and write `.npz` files without trusting them."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from aceglt.errors import DataError
from aceglt.files import write_atomic

Array = npt.NDArray[Any]

MAX_BYTES = 16 << 30  # what the arrays of one file may take in memory
# Deflate reaches 1030:1 on zeros; honest masks get near it, honest big arrays do not.
BOMB_BYTES, BOMB_RATIO = 256 << 20, 500


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, Array]:
    """Return those of `names` that `path` has; every array is writable and in native byte order.

    Nothing is unpickled, and nothing is allocated before the declared sizes agree with each other and with
    the limits. Raises `DataError` for whatever is wrong with the file.
    """
    if os.path.isdir(path):
        raise DataError(f"{path}: is a folder, expected an .npz file")
    if not os.path.isfile(path):  # unlike Path's, it never raises
        raise DataError(f"{path}: no such file")
    arrays: dict[str, Array] = {}
    with _reported(f"{path}", "a readable .npz file"), zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for name in names:
            if info := members.get(f"{name}.npy"):
                room = MAX_BYTES - sum(array.nbytes for array in arrays.values())
                arrays[name] = _read_member(archive, info, f"{path}: array {name}", room)
    return arrays


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
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(f"{where}: found {reason[:200]}, expected {expected}") from error


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str, room: int) -> Array:
    _check_member(archive, info, where, room)
    with _reported(where, "an undamaged array"), archive.open(info) as stream:
        shape, fortran_order, dtype = _read_header(stream, where)
        if any(size < 0 for size in shape):
            raise DataError(f"{where}: found shape {list(shape)}, expected sizes of at least 0")
        count = math.prod(shape)
        found, declared = info.file_size - stream.tell(), count * dtype.itemsize
        if found != declared:
            raise DataError(f"{where}: found {found} bytes, expected {declared} for {dtype} {list(shape)}")
        array = np.empty(count, dtype=dtype)
        _fill(stream, array, where)
        # A reshape to Fortran order is a view: the caller decides about copies.
        array = array.reshape(shape, order="F" if fortran_order else "C")
        return array.astype(dtype.newbyteorder("="), copy=False)


def _check_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str, room: int) -> None:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{where}: found compression type {info.compress_type}, expected stored or deflated")
    if info.file_size > room:
        raise DataError(f"{where}: found {info.file_size} bytes, expected at most {MAX_BYTES} in all arrays")
    held = os.fstat(archive.fp.fileno()).st_size if archive.fp else 0
    if info.compress_size > held:
        raise DataError(f"{where}: found {info.compress_size} compressed bytes, expected at most the file's {held}")
    if info.file_size > max(BOMB_BYTES, BOMB_RATIO * info.compress_size):
        raise DataError(
            f"{where}: found {info.file_size} bytes in {info.compress_size} compressed ones, "
            f"expected at most {BOMB_RATIO} to 1 (sparse features go into x_data, x_indices, … x_shape)"
        )


def _read_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise DataError(f"{where}: found .npy version {version}, expected 1.0 or 2.0")
    shape, fortran_order, dtype = readers[version](stream)
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
