"""Files that are whole or not there."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from aceglt.errors import AcegltError, ConfigError

VARIABLE = "ACEGLT_READ_GIB"
"""Names the GiB that what one file says may take in memory, whatever the file's own size."""
_ALLOWANCE = 0.25
_RATIO = 16  # of memory to a file's size, where that is more: what honest content needs
_DEEPEST = 64  # nesting of JSON; ours has 6


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


_UMASK = _umask()  # which temporary files ignore; to read it is to change it, for all threads, so it is read once


def write_atomic(path: Path, content: bytes, umask: int = _UMASK) -> None:
    """Write to a temporary name beside the file, then rename: a reader sees the old content or the new, whole.

    Only files are replaced. What a link leads to is, in place of the link; what the program prints to, devices and
    pipes are written to.
    """
    with _naming(path):
        if _is_special(path):
            _write_through(path, content)
            return
        path = Path(os.path.realpath(path)) if path.is_symlink() else path
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


def is_stdout(path: Path) -> bool:
    """Whether this names what the program prints to, be it a file."""
    return _stream(path) == 1


def _stream(path: Path) -> int | None:
    """The number of the stream, stdout or stderr, that this names."""
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(number)):
                return number
    return None


def _is_special(path: Path) -> bool:
    """Whether there is something that a rename must not replace."""
    try:
        return _stream(path) is not None or not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _write_through(path: Path, content: bytes) -> None:
    """Write to a stream, a device or a pipe that somebody reads; disks, sockets and folders are refused."""
    if (stream := _stream(path)) is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        handle = os.dup(stream)
    else:
        mode = os.stat(path).st_mode
        if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENOTSUP
            raise OSError(number, os.strerror(number))
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # or it would wait for a reader
        os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def check_output(path: Path, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before anything is computed, a file to write that is a folder, one of the command's inputs, a ticket,
    which another search would have to find again, or a graph."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file to write")
    for given in inputs:
        with suppress(OSError, ValueError):  # a name with a null byte is of no file
            if os.path.samefile(path, given):
                raise ConfigError(f"{path} is what the command reads; name another file to write")
    if held := _held(path):
        raise ConfigError(f"{path} is {held}; name another file to write, or remove it")


def _held(path: Path) -> str:
    """What a file holds that no output may replace. Those of safetensors begin with the header's length and JSON."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            start = file.read(9)
        if start[8:] == b"{" and int.from_bytes(start[:8], "little") <= os.path.getsize(path):
            return "a ticket, or holds other tensors"
        return "a graph or another archive" if start[:4] == b"PK\3\4" else ""
    except (OSError, ValueError):  # a name with a null byte is of no file
        return ""


def check_regular(path: Path) -> None:
    """Raise OSError where this is there and no regular file: a pipe or a device may wait, or never end."""
    with _naming(path), suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")


def read_regular(path: Path) -> bytes:
    """The content of a regular file that is no larger than what we write; OSError where it is not such."""
    check_regular(path)
    with open(path, "rb") as file:
        there = max(os.fstat(file.fileno()).st_size, 1 << 16)  # read allocates what it is asked for
        content = file.read(min(there, text_bytes()) + 1)
    if len(content) > text_bytes():
        raise OSError(errno.EFBIG, f"larger than {text_bytes() >> 20} MiB; {VARIABLE} allows more", str(path))
    return content


def text_bytes() -> int:
    """Bytes of JSON that are parsed; its values take up to some twenty times as much."""
    return _allowance() // _RATIO


def check_claim(needed: float, size: int, what: str, error: type[AcegltError], ratio: int = _RATIO) -> None:
    """Refuse, before it is allocated, what takes so many bytes in memory but has a file of only `size` bytes."""
    if needed > max(_allowance(), ratio * size):
        raise error(
            f"{what}: would take {needed / 2**30:.3g} GiB of memory, too much for {size} bytes; if that is meant, set "
            f"{VARIABLE} to the GiB that a file may take"
        )


def _allowance() -> int:
    try:
        allowed = float(os.environ.get(VARIABLE, _ALLOWANCE))
    except ValueError:
        allowed = math.nan
    if not 0 < allowed < 1e6:
        raise ConfigError(f"{VARIABLE} must be a number of GiB above 0 and below 1e6, found {os.environ[VARIABLE]!r}")
    return int(allowed * 2**30)


def leftovers(path: Path) -> list[Path]:
    """Temporary files of processes that were killed while they wrote this file."""
    return list(path.parent.glob(f".{path.name}.????????"))


def append_line(path: Path, line: str) -> None:
    """Append to a log; a last line that a full disk cut short is ended first."""
    check_regular(path)
    with _naming(path), open(path, "ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line.encode(errors="backslashreplace") + b"\n")


def tail(path: Path, size: int = 1 << 20) -> list[str]:
    """The lines that a log ends with; none where there is no regular file."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size).decode(errors="replace").splitlines()
    except OSError:
        return []


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
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    layer = [found]
    for _ in range(_DEEPEST):  # whoever walks through it may recurse
        layer = [part for value in layer for part in _parts(value)]
    if layer:
        raise ValueError("nested too deeply")
    return found


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


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
