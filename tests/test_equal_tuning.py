"""Equal tuning, searches side by side, and the ranks of the winning ticket."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from samples import tiny_data

from aceglt.config import Config, resolve
from aceglt.numerics.masks import Masks, Scores
from aceglt.training.fit import Fit
from study import equal, winning
from study.cells import GAT, missing
from study.methods import carried
from study.tune import read, search_fold
from study.workers import side_by_side


@pytest.mark.parametrize("method", equal.TUNED_METHODS)
def test_every_method_has_twelve_settings_that_the_library_takes(method: str) -> None:
    grid = equal.grid(method)
    assert len(grid) == 12
    for settings in grid.values():
        resolve("paper", **settings)


def test_the_published_setting_is_among_those_that_are_tried() -> None:
    assert resolve("paper", **next(iter(equal.grid("ugs").values()))) == resolve("paper", method="ugs")
    assert resolve("paper", **next(iter(equal.grid("gebt").values()))) == resolve("paper", method="gebt")
    published = equal.grid("ace")["λ of Table S2, balance 0, exchange 0.05"]
    assert resolve("paper", **published) == resolve("paper", method="ace")


def test_the_best_mean_over_all_places_is_the_tuned_setting(tmp_path: Path) -> None:
    names = list(equal.grid("ugs"))
    lines = [
        {**task, "seeds": "5", "dense": "80", **dict.fromkeys(("step 1", "step 2", "step 3", "step 4", "step 5"), "70")}
        | {"mean": "72" if task["settings"] == names[7] else "70"}
        for task in equal.tasks([], "cpu", None)
        if task["method"] == "ugs"
    ]
    assert equal.tuned("ugs", lines) == names[7]
    assert equal.tuned("ugs", lines[1:]) is None  # one place is missing
    equal.write(lines, tmp_path / "record.csv")
    left = equal.tasks(read(tmp_path / "record.csv"), "cpu", None)
    assert len(left) == 3 * 12 * len(equal.PLACES)
    assert all(task["method"] != "ugs" for task in left)


def test_best_of_several_draws_is_a_setting_that_can_be_searched() -> None:
    settings = equal.grid("random")["balance 0.5, best of 3 draws"]
    found = search_fold(tiny_data(), device="cpu", axis="joint", levels=2, seeds=2, epochs=3, hidden=8, **settings)
    assert found["method"] == "study.methods:RandomDraws"
    assert [level["epochs"]["select"] for level in found["levels"]] == [9, 9]


def test_searches_side_by_side_give_what_they_found_and_why_they_failed() -> None:
    found = dict(side_by_side(math.factorial, [2, -3, 4], workers=2))  # not of this module, which takes long to import
    assert (found[2], found[4]) == (2, 24)
    assert isinstance(found[-3], ValueError)


def test_what_has_not_ended_in_time_is_given_up() -> None:
    assert list(side_by_side(math.factorial, [2, 4], workers=2, seconds=0)) == []


def test_scores_are_carried_while_an_element_stays_in_its_part() -> None:
    given = iter([torch.tensor([[4.0, 8.0, 6.0]]), torch.tensor([[2.0, 2.0, 2.0]])])

    def train(masks: Masks, epochs: int, phase: str, **more: object) -> Fit:
        scores = next(given)
        return Fit(torch.zeros(1), torch.ones(1), None, Scores(scores, scores))

    remembering = carried(train)
    masks = [torch.tensor([[True, True, False]]), torch.tensor([[True, False, True]])]
    for mask in masks:
        fit = remembering(Masks(mask, mask), 1, "refine")
    assert fit.scores is not None
    assert fit.scores.edges.tolist() == [[3.0, 2.0, 2.0]]


def test_ranks_change_among_the_winning_tickets_elements_alone() -> None:
    then, now = torch.tensor([0.1, 9.0, 0.3, 0.2]), torch.tensor([0.3, 0.0, 0.2, -0.1])
    change = winning.rank_changes(then, now, torch.tensor([True, False, True, True]))
    torch.testing.assert_close(change, torch.tensor([1 / 3 - 1, 1 - 2 / 3, 2 / 3 - 1 / 3]))


def test_parts_of_the_study_have_the_cells_that_they_should() -> None:
    assert len(GAT.cells) == 24
    assert all(resolve("paper", **cell.choices(GAT.scales[0])).training.lr == 0.005 for cell in GAT.cells)
    pairs: dict[tuple[str, str, str], list[Config]] = {}
    for _, cell, scale in missing("pairs", folder=Path("nothing is kept")):
        pairs.setdefault((cell.dataset, cell.backbone, cell.axis), []).append(cell.config(scale))
    assert len(pairs) == 32
    for without, default in pairs.values():
        assert (without.method, default.method, default.method_options["reading"]) == ("ugs", "ace", "default")
        same = {"method": "ugs", "method_options": without.method_options}
        assert default.replace(**same) == without
        assert (without.stopping.levels, len(without.seeds) >= 5) == (20, True)
    readings = [cell for _, cell, _ in missing("readings", folder=Path("nothing is kept"))]
    assert {cell.variant or cell.method for cell in readings} == {"ugs", "ace", "literal", "code", "teacher", "default"}
    assert len(readings) == 12 * 6
