"""Files that are whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from search_samples import files

from aceglt.files import write_atomic, write_json


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    for function in ("fsync", "chmod", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, _full_disk)
            with pytest.raises(OSError, match="No space left"):
                write_atomic(path, b"new and longer")
        assert path.read_bytes() == b"old", function
        assert files(tmp_path) == {"file"}, function


def _full_disk(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    write_atomic(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert files(tmp_path) == {"file"}


def test_a_write_replaces_the_old_file(tmp_path: Path) -> None:
    for content in (b"a long first content", b"short"):
        write_atomic(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert files(tmp_path) == {"file"}


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "umask", _full_disk)  # other threads would see it change
    write_atomic(tmp_path / "file", b"content", umask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_a_new_name_reaches_the_disk_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(stat.S_ISDIR(os.fstat(handle).st_mode)))
    write_atomic(tmp_path / "file", b"content")
    assert synced == [False, True]


def test_json_with_a_value_that_is_not_a_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "file", {"a": float("nan")})
    assert files(tmp_path) == set()
