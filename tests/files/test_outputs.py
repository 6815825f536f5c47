"""Only files are replaced, only files are read: links, devices, pipes and folders stay what they are."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from search_samples import environment

from aceglt.errors import ConfigError, DataError
from aceglt.files import append_line, check_claim, check_output, parse_json, read_regular, tail, write_atomic


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    for content in (b"new", b"again"):
        write_atomic(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there/file").read_bytes() == content
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "link", "there"]


def test_a_pipe_is_written_to_if_somebody_reads_it(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device"):
        write_atomic(pipe, b"nobody reads")
    handle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    reader = threading.Thread(target=lambda: got.append(os.read(handle, 100)))
    write_atomic(pipe, b"content")
    reader.start()
    reader.join()
    os.close(handle)
    assert got == [b"content"]
    assert pipe.is_fifo()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to make devices")
def test_a_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    null, full = tmp_path / "null", tmp_path / "full"
    os.mknod(null, 0o20666, os.makedev(1, 3))
    os.mknod(full, 0o20666, os.makedev(1, 7))
    write_atomic(null, b"content")
    with pytest.raises(OSError, match="No space left"):
        write_atomic(full, b"content")
    assert null.is_char_device()
    assert full.is_char_device()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        write_atomic(tmp_path, b"content")


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_stdout_is_written_to_be_it_a_file(kind: str, tmp_path: Path) -> None:
    code = "import aceglt.files, pathlib; print('first'); aceglt.files.write_atomic(pathlib.Path('/dev/stdout'), b'second\\n'); print('third')"  # noqa: E501
    with open(tmp_path / "out", "wb") as file:
        stream = file if kind == "file" else subprocess.PIPE
        ended = subprocess.run([sys.executable, "-c", code], stdout=stream, env=environment(), check=True)
    found = ended.stdout if kind == "pipe" else (tmp_path / "out").read_bytes()
    assert found == b"first\nsecond\nthird\n"


def test_stderr_that_is_a_file_is_written_to(tmp_path: Path) -> None:
    code = "import aceglt.files, pathlib, sys; print('first', file=sys.stderr); aceglt.files.write_atomic(pathlib.Path('/dev/stderr'), b'second\\n'); print('third', file=sys.stderr)"  # noqa: E501
    with open(tmp_path / "log", "wb") as file:
        subprocess.run([sys.executable, "-c", code], stderr=file, env=environment(), check=True)
    assert (tmp_path / "log").read_bytes() == b"first\nsecond\nthird\n"


def test_an_output_that_is_an_input_or_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("")
    (tmp_path / "link").symlink_to("input")
    check_output(tmp_path / "other", [tmp_path / "input", tmp_path / "missing"])
    for name in ("input", "link"):
        with pytest.raises(ConfigError, match="is what the command reads"):
            check_output(tmp_path / name, [tmp_path / "input"])
    with pytest.raises(ConfigError, match="is a folder"):
        check_output(tmp_path)


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "folder"])
def test_only_regular_files_are_read_and_appended_to(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(path)
    with pytest.raises(OSError, match="not a regular file"):
        append_line(path, "line")
    assert tail(path) == []


def test_a_file_larger_than_any_of_ours_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="larger than 16 MiB; ACEGLT_READ_GIB allows more"):
        read_regular(tmp_path / "huge")
    assert sum(map(len, tail(tmp_path / "huge"))) <= 1 << 20


def test_what_is_allowed_is_not_allocated_for_a_small_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").write_text("{}")
    monkeypatch.setenv("ACEGLT_READ_GIB", "999999")  # 64 TiB of text
    assert read_regular(tmp_path / "small") == b"{}"


def test_a_claim_is_held_against_the_size_of_its_file() -> None:
    check_claim(200 << 20, 10, "small", DataError)
    check_claim(16 << 30, 1 << 30, "large", DataError)
    with pytest.raises(DataError, match="file: would take 1 GiB of memory, too much for 10 bytes"):
        check_claim(1 << 30, 10, "file", DataError)


@pytest.mark.parametrize("text", ["[" * 500 + "]" * 500, '{"a":' * 500 + "1" + "}" * 500, "[" * 99_999])
def test_deep_nesting_is_refused_where_json_is_read(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(text)
