"""Where datasets are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from aceglt.datasets.roots import cache_root, roots


def test_a_relative_or_missing_cache_home_means_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == Path("/home/someone/.cache/aceglt")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path("/home/someone/.cache/aceglt")


def test_an_empty_variable_is_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACEGLT_DATA", "")
    assert roots() == [cache_root()]


def test_the_argument_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("ACEGLT_DATA", "~/data")
    assert roots("/given") == [Path("/given"), Path("/home/someone/data"), cache_root()]
