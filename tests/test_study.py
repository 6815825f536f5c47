"""The study's bookkeeping: what is kept of searches, and how methods are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aceglt.reproduction import Scale, exhibit, reproduce
from study import cells, page
from study.compare import Group, groups

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results/table1"
TINY: dict[str, Any] = {"levels": 2, "epochs": 2, "hidden": 4, "device": "cpu"}


def result(method: str, tests: list[list[float]], axis: str = "model", variant: str = "") -> dict[str, Any]:
    """Levels of 20, 36, 49 … % model or 5, 10, 14 … % graph sparsity, with these test metrics of each seed."""
    name = f"cora/gcn/{axis}/{method}" + (f"/{variant}" if variant else "")
    levels = [
        {
            "level": i + 1, "model_sparsity": 1 - 0.8 ** (i + 1), "graph_sparsity": 1 - 0.95 ** (i + 1), "val": test,
            "test": test, "epochs": {"select": 60, "retrain": 200}, "seconds": 1.0,
        }
        for i, test in enumerate(tests)
    ]  # fmt: skip
    seeds = list(range(len(tests[0])))
    dense = {"val": [0.8] * len(seeds), "test": [0.8] * len(seeds), "seconds": 1.0}
    return {
        "cell": name, "dataset": "cora", "backbone": "gcn", "axis": axis, "method": method, "seeds": seeds,
        "dense": dense, "levels": levels, "epochs": 200,
    }  # fmt: skip


def group_of(*results: dict[str, Any]) -> Group:
    (group,) = groups(results)
    return group


def test_means_are_over_the_sparse_levels_alone() -> None:
    group = group_of(result("ugs", [[0.1, 0.2], [0.5, 0.6], [0.7, 0.6]]))
    assert group.compared == [1, 2]
    assert group.means("ugs") == [pytest.approx(0.6), pytest.approx(0.6)]
    assert group_of(result("ugs", [[0.1]] * 4, "graph")).compared == [2, 3]


def test_the_best_is_the_highest_mean_and_a_star_needs_consistency() -> None:
    level = [0.70, 0.71, 0.72, 0.73, 0.74]
    better = [value + 0.02 + 0.001 * i for i, value in enumerate(level)]
    mixed = [0.9, 0.6, 0.9, 0.6, 0.9]
    group = group_of(
        result("ugs", [level] * 3), result("ace", [mixed] * 3), result("ace", [better] * 3, variant="ours")
    )
    assert list(group.results) == ["ugs", "ace", "ours"]
    assert group.best == "ace"
    assert [group.star(method) for method in group.results] == [False, False, True]
    assert group.below() == []


def test_levels_below_another_method_are_found_after_correction() -> None:
    low = [0.60, 0.61, 0.62, 0.63, 0.64]
    high = [0.70 + 0.001 * i for i in range(5)]
    close = [value + (0.001 if i else 0.01) for i, value in enumerate(low)]  # p is below 0.05, but not twice as high
    group = group_of(result("ugs", [low, high, close]), result("ace", [low, low, low], variant="ours"))
    assert group.below() == ["ugs at level 2"]


def test_methods_are_compared_on_the_seeds_that_both_have() -> None:
    few, many = result("ugs", [[0.5], [0.5]]), result("ace", [[0.6, 0.1], [0.6, 0.1]], variant="ours")
    group = group_of(few, many)
    assert group.means("ours") == [pytest.approx(0.6)]
    assert group.results["ours"]["dense"]["test"] == [0.8]


def test_finished_searches_are_kept_with_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["citeseer/gcn/model/random", "citeseer/gcn/model/ace/ours"]
    monkeypatch.setattr(cells, "Scale", lambda: Scale(levels=2, epochs=2, settings={"hidden": 4}))
    kept = tmp_path / "kept"
    reproduce("table1", cells=names, out=tmp_path / "out", seeds=1, **TINY)
    assert cells.collect(tmp_path / "out", "abc", kept) == names
    assert cells.collect(tmp_path / "out", "abc", kept) == []
    reproduce("table1", cells=names[1], out=tmp_path / "out", seeds=2, **TINY)
    assert cells.collect(tmp_path / "out", "def", kept) == names[1:]
    random, ours = cells.load(kept)
    assert (random["seeds"], ours["seeds"], random["code"], ours["code"]) == ([0], [0, 1], "abc", "def")
    assert ours["command"] == "aceglt reproduce table1 --cell citeseer/gcn/model/ace/ours --seeds 0,1"
    assert "diagnostics" not in ours["levels"][0]
    pytest.importorskip("matplotlib")
    page.write(kept, tmp_path / "docs")
    text = (tmp_path / "docs" / "table1.md").read_text()
    assert "### citeseer/gcn/model\n\n1 seeds; dense " in text
    assert (tmp_path / "docs" / "gcn.svg").read_text().startswith("<?xml")
    assert len((kept / "levels.csv").read_text().splitlines()) == 1 + 2 * 3


@pytest.mark.skipif(not KEPT.exists(), reason="results are in the repository, not in the package")
def test_what_is_kept_is_of_the_table_as_it_is_now() -> None:
    """Committed results have a cell each, 20 levels, and the settings that the table has today."""
    known = {cell.name: cell.config(Scale()) for cell in exhibit("table1").cells}
    results = list(cells.load(KEPT))
    assert results
    for kept in results:
        config = known[kept["cell"]].to_dict()
        assert json.loads(json.dumps({k: v for k, v in config.items() if k != "seeds"})) == kept["config"]
        assert len(kept["levels"]) == 20
        assert all(len(level["test"]) == len(kept["seeds"]) >= 3 for level in kept["levels"])


@pytest.mark.skipif(not KEPT.exists(), reason="results are in the repository, not in the package")
def test_pages_are_made_of_what_is_kept() -> None:
    found = groups(list(cells.load(KEPT)))
    backbones = list(dict.fromkeys(group.backbone for group in found))
    assert (ROOT / "docs/study/table1.md").read_text() == page.page(found, backbones)
    assert (KEPT / "levels.csv").read_text() == page.levels_csv(found)
    text = (ROOT / "docs/study.md").read_text()
    assert page.accuracy(found) in text
    assert page.winners(found) in text


def test_tables_of_a_page_are_refreshed_between_their_comments(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- a -->\nold\n<!-- end of a -->\nafter\n")
    for table in ("new", "newer"):
        page.refresh(path, {"a": table})
        assert path.read_text() == f"before\n<!-- a -->\n{table}\n<!-- end of a -->\nafter\n"


def test_the_overview_counts_complete_cells_and_names_the_exceptions() -> None:
    low, high = [0.70 + 0.001 * i for i in range(5)], [0.80 + 0.001 * i for i in range(5)]
    others = [result(method, [low] * 3) for method in ("random", "ugs", "gebt", "ace")]
    first = page.page(groups([*others, result("ace", [high] * 3, variant="ours")]), ["gcn"])
    assert "highest mean in 1 of the 1 cells that all five methods have searched. Levels" in first
    last = page.page(
        groups([*others[:3], result("ace", [high] * 3), result("ace", [low] * 3, variant="ours")]), ["gcn"]
    )
    assert "highest mean in 0 of the 1 cells that all five methods have searched; not in cora/gcn/model (ACE" in last
    assert "cora/gcn/model: ace at level 2, ace at level 3." in last
