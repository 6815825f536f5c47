"""Pairs of nodes from CSV files: every line is a pair, or the file is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from aceglt.errors import DataError
from aceglt.tickets.tables import read_pairs


@pytest.mark.parametrize(
    "content",
    [b"0,1\n2,3\n", b"\xef\xbb\xbf0,1\r\n2,3\r\n", b"source,target,score\n0,1,0.5\n\n2,3,0.1\n"],
    ids=["plain", "of a spreadsheet", "with names and a third column"],
)
def test_every_line_is_a_pair(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_bytes(content)
    assert read_pairs(tmp_path / "pairs.csv").tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize("content", ["0\n1\n2\n3\n", "0,1\n2\n", "0,1\n2,x\n", f"0,{2**63}\n", "1" * 200_000])
def test_lines_without_two_whole_numbers_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(content)
    with pytest.raises(DataError, match="two whole numbers in every line"):
        read_pairs(tmp_path / "pairs.csv")
