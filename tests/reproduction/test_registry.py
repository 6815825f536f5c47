"""The registry against the paper: what is there, what is quoted, and what is searched for it."""

from __future__ import annotations

import pytest

from aceglt.config import SCORING, resolve
from aceglt.config.groups import LinkOptions
from aceglt.errors import ConfigError
from aceglt.methods import Ugs
from aceglt.methods.build import build_method
from aceglt.reproduction import EXHIBITS, Scale, exhibit
from aceglt.reproduction.grid import quotes

NAMES = (
    "table1 table2 figure1 figure3 figure4 figureS1 figureS2 figureS3 tableS3 figureS4 tableS4 tableS5 tableS6 tableS7 "
    "figureS5 figureS6 tableS8"
)
each = pytest.mark.parametrize("name", list(EXHIBITS))


def test_every_table_and_figure_with_results_is_there() -> None:
    assert " ".join(EXHIBITS) == NAMES


@each
def test_every_place_of_a_layout_is_filled_and_every_quote_has_a_place(name: str) -> None:
    grid = EXHIBITS[name].grid
    keys = {(row.key, column.key) for row in grid.rows for column in grid.columns}
    assert keys <= set(grid.contents)
    assert set(quotes(grid.quoted)) <= keys


@each
def test_every_cell_is_a_search_with_a_name_of_its_own(name: str) -> None:
    cells = EXHIBITS[name].cells
    assert len({cell.name for cell in cells}) == len(cells) > 0
    for cell in cells:
        config = cell.config(Scale())
        build_method(config)
        signal = "teacher" if cell.variant in ("teacher", "default") else "labels"
        assert (config.preset, config.scoring.signal, config.training.epochs) == ("paper", signal, 200)
        assert config.seeds == (0, 1, 2)


def test_teacher_and_default_search_as_the_default_does_and_train_as_the_paper_does() -> None:
    wanted = ("ugs/teacher", "ace/default", "ace", "ace/literal", "ace/code")
    cells = [exhibit("table1").pick([f"cora/gcn/model/{name}"])[0] for name in wanted]
    taught, ours, *readings = (cell.config(Scale()) for cell in cells)
    default = resolve(dataset="cora")
    assert (build_method(taught), build_method(ours)) == (Ugs(), build_method(default))
    for config in (taught, ours):
        assert [config.flat()[name] for name in SCORING] == [default.flat()[name] for name in SCORING]
        assert config.training == readings[0].training != default.training
    assert [config.method_options["reading"] for config in readings] == ["topk", "literal", "code"]


@pytest.mark.parametrize(
    ("name", "row", "column", "text", "mark", "star"),
    [
        ("table1", "gcn/ace", "citeseer/model", "83.91 ± 0.18", "best", True),
        ("table1", "gcn/ugs", "cora/model", "67.23 ± 0.23", "second", False),
        ("table1", "gcn/random", "cora/model", "-", "", False),
        ("table1", "gat/ace", "pubmed/highest", "78.38 ± 0.11", "best", False),
        ("table1", "gin/gebt", "citeseer/graph", "30.15 ± 0.20", "second", False),
        ("table2", "cora/gcn/both", "model/50", "83.1", "best", False),
        ("table2", "citeseer/gin/adaptive", "model/60", "69.2", "best", False),
        ("tableS3", "gcn/ugs", "pubmed/highest", "93.39 ± 0.43", "best", False),
        ("tableS3", "gat/random", "citeseer/model", "79.91 ± 2.36", "", False),
        ("tableS4", "cora/gin/both", "graph/60", "75.8", "", False),
        ("tableS4", "citeseer/gcn/link/resample", "model/20", "96.63", "", False),
        ("tableS5", "dense", "resgcn/ogbn-proteins", "77.47", "", False),
        ("tableS6", "gcn/gebt", "cora/graph", "12.82 ± 2.71", "best", False),
        ("tableS7", "resgcn/ugs", "ogbn-arxiv/graph", "15.62 ± 1.97", "best", False),
        ("tableS8", "gat/ace", "pubmed/seconds", "97690 s", "", False),
        ("tableS8", "gcn/ugs", "cora/macs", "863 M", "", False),
        ("figure3", "resgcn/ace", "ogbn-proteins/model", "86.99", "", False),
        ("figure4", "citeseer/gcn", "graph/90", "22.65", "", False),
        ("figureS4", "resgcn/ace", "ogbl-collab/graph", "35.19", "", False),
    ],
)
def test_numbers_are_quoted_as_printed(name: str, row: str, column: str, text: str, mark: str, star: bool) -> None:
    entry = quotes(name)[row, column]
    assert (entry.text, entry.mark, entry.star) == (text, mark, star)


def test_every_number_of_the_papers_tables_is_quoted() -> None:
    sizes = {name: len(quotes(name)) for name in EXHIBITS if name.startswith("table")}
    assert sizes == {
        "table1": 12 * 9, "table2": 8 * 6, "tableS3": 9 * 9, "tableS4": 12 * 12, "tableS5": 11, "tableS6": 12 * 9,
        "tableS7": 3 * 6, "tableS8": 6 * 7,
    }  # fmt: skip


def test_searches_have_the_papers_settings() -> None:
    cell = exhibit("table1").pick(["cora/gcn/model/ace"])[0]
    config = cell.config(Scale())
    assert (config.training.lr, config.training.weight_decay) == (6e-2, 6e-5)
    assert (config.scoring.lambda_edges, config.stopping.levels) == (2e-3, 20)
    assert (config.pruning.fixed_graph, config.pruning.prune_model) == (0.05, 0.2)
    proteins = exhibit("figure3").pick(["ogbn-proteins/ace/model"])[0].config(Scale())
    assert (proteins.backbone_options.hidden, proteins.scoring.lambda_edges) == (128, 0.1)
    collab = exhibit("figureS4").cells[0].config(Scale())
    assert (collab.task_options, collab.scoring.lambda_weights) == (LinkOptions("bce", "random"), 1e-5)
    assert exhibit("tableS3").cells[0].config(Scale()).flat()["objective"] == "infoclust"


def test_fixed_sparsities_are_those_of_the_figures() -> None:
    configs = [cell.config(Scale()) for cell in exhibit("figureS5").pick(["pubmed/gin"])]
    assert [c.pruning.fixed_graph for c in configs if c.pruning.axis == "model"] == [0.1, 0.15, 0.2, 0.25]
    assert [c.pruning.fixed_model for c in configs if c.pruning.axis == "graph"] == [0.4, 0.5, 0.7, 0.9]


def test_the_ablation_switches_what_its_rows_say() -> None:
    grid = exhibit("table2").grid
    for row in grid.rows:
        options = grid.contents[row.key, "model/20"].cells[0].config(Scale()).method_options  # type: ignore[union-attr]
        assert tuple("✓" if options.get(name, True) else "×" for name in ("resample", "adaptive_k")) == row.labels[2:]


def test_fewer_epochs_shorten_refinement_in_proportion() -> None:
    ace, gebt = (exhibit("table1").pick([f"cora/gcn/model/{m}"])[0] for m in ("ace", "gebt"))
    assert ace.config(Scale(epochs=40)).method_options["refine_epochs"] == 6
    assert gebt.config(Scale(epochs=40)).method_options["max_epochs"] == 20
    assert ace.config(Scale(epochs=200)) == ace.config(Scale())


def test_levels_beyond_what_a_table_shows_are_not_searched() -> None:
    cell = exhibit("table2").cells[0]
    assert [cell.config(Scale(levels=levels)).stopping.levels for levels in (None, 3, 50)] == [7, 3, 7]


def test_cells_are_picked_by_any_of_their_parts() -> None:
    table = exhibit("table1")
    assert len(table.pick(["cora/gcn"])) == 16
    assert len(table.pick(["graph/ugs"])) == 18
    assert [cell.variant for cell in table.pick(["Cora/GCN/graph/ugs"])] == [""]
    assert len(table.pick(["Cora/GCN/graph/ace"])) == 1
    assert {cell.method for cell in table.pick(["ugs", "ace"])} == {"ugs", "ace"}
    with pytest.raises(ConfigError, match=r"table1 has no cell 'cora/resgcn'; join any of cora, gcn, .* with /"):
        table.pick(["gcn", "cora/resgcn"])


def test_names_are_found_in_any_case_and_unknown_ones_refused_with_the_list() -> None:
    assert exhibit("FIGURES1").name == "figureS1"
    with pytest.raises(ConfigError, match=r"no 'tabel1' to reproduce; did you mean table1\?; known are table1, "):
        exhibit("tabel1")
