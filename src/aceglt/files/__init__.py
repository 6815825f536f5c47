"""Files that are whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


_UMASK = _umask()  # which temporary files ignore; to read it is to change it, for all threads, so it is read once


def write_atomic(path: Path, content: bytes, umask: int = _UMASK) -> None:
    """Write to a temporary name beside the file, then rename: a reader sees the old content or the new, whole."""
    with _naming(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
            _sync_folder(path.parent)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def leftovers(path: Path) -> list[Path]:
    """Temporary files of processes that were killed while they wrote this file."""
    return list(path.parent.glob(f".{path.name}.????????"))


def append_line(path: Path, line: str) -> None:
    """Append to a log; a last line that a full disk cut short is ended first."""
    with _naming(path), open(path, "ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line.encode() + b"\n")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """What goes wrong is this file's: a failed write or fsync does not know, and nobody knows a temporary name."""
    try:
        yield
    except OSError as problem:
        if problem.errno is not None:  # else it is only a message
            problem.filename = str(path)
        raise


def _sync_folder(folder: Path) -> None:
    """A rename outlives a power cut only once its folder is on the disk; not every file system can say so."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_atomic(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def write_checked_json(path: Path, value: Mapping[str, Any]) -> None:
    """With a checksum of the rest under `sha256`."""
    write_json(path, {**value, "sha256": json_digest(value)})


def json_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON object, however it is laid out."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_json(text: str | bytes) -> Any:
    """What JSON text says, strictly: a name given twice, NaN and infinity are refused. Raises ValueError."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON's")


def short_digest(text: str) -> str:
    """Six hexadecimal digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]
