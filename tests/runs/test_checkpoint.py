"""A search's state as a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from search_samples import bits_flipped

from aceglt.errors import RunError
from aceglt.files import tensors as storage
from aceglt.numerics.masks import Counts, Masks, Scores
from aceglt.runs import checkpoint
from aceglt.searches.state import LevelRecord, Outcome, Selected, State

TOTAL = Counts(11, 5)


def _masks(seed: int) -> Masks:
    generator = torch.Generator().manual_seed(seed)
    return Masks(torch.rand(2, 11, generator=generator) < 0.5, torch.rand(2, 5, generator=generator) < 0.5)


def _states() -> list[State]:
    """A search's states from its start to a level in work."""
    dense = Outcome([0.5, 0.1], [0.25, 1 / 3], [3, 1], 1.5)
    untested = Outcome([0.5, 0.1], None, [3, 1], 1.5)
    record = LevelRecord(1, _masks(0).alive, dense, 2.5, 7, {"weights": {"distinct": [3, 4]}})
    soft = torch.rand(2, 4, 3)
    chosen = Selected(_masks(1), 0.5, 3, {"a": [1.0]}, {"edges": [0.25, None]}, {"alive": [True]})
    scores = Scores(torch.rand(2, 11).where(_masks(2).weights, torch.nan), torch.rand(2, 5))
    return [
        State(),
        State(dense=dense),
        State(dense=untested, soft=soft, taught={"smoothing": [True, False]}),
        State(dense=dense, soft=soft, selected=chosen),
        State(dense=dense, soft=soft, masks=_masks(0), records=(record,)),
        State(dense=dense, masks=_masks(0), importance=scores, records=(record,)),
        State(
            dense=dense, masks=_masks(0), importance=scores, selected=chosen, records=(record, replace(record, level=2))
        ),
    ]


def _plain(value: Any) -> Any:
    """Tensors as lists, so that states compare."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.nan_to_num(-1.0).tolist()
    if isinstance(value, (State, Selected, Masks, Scores)):
        return {name: _plain(part) for name, part in vars(value).items()}
    return value


@pytest.mark.parametrize("state", _states())
def test_a_saved_state_comes_back_exactly(state: State, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "checkpoint", state)
    assert _plain(checkpoint.load(tmp_path / "checkpoint", TOTAL, 2)) == _plain(state)


@pytest.mark.parametrize("total", [Counts(19, 5), Counts(3, 5), Counts(11, 9), Counts(0, 0)])
def test_a_checkpoint_of_a_search_of_another_size_is_refused(total: Counts, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "checkpoint", _states()[-1])
    with pytest.raises(RunError, match="does not fit this search"):
        checkpoint.load(tmp_path / "checkpoint", total, 2)


def test_a_damaged_checkpoint_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint.save(path, _states()[-1])
    content = path.read_bytes()
    cut = [content[:length] for length in range(0, len(content), 11)]
    flipped = [damaged for i, damaged in enumerate(bits_flipped(content)) if i % 41 == 0]
    for damaged in cut + flipped:
        path.write_bytes(damaged)
        with pytest.raises(RunError) as caught:
            checkpoint.load(path, TOTAL, 2)
        assert str(path) in str(caught.value)
        assert str(caught.value).endswith("without this file the same command starts again from the beginning")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"records": 3},
        {"records": [5]},
        {"records": [{}]},
        {"records": []},
        {"dense": None},
        {"dense": {"val": [0.5]}},
        {"dense": 1},
        {"selected": None},
        {"selected": {"unheard": 1}},
    ],
)
def test_a_checkpoint_whose_content_does_not_fit_together_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint.save(path, _states()[-1])
    payload, tensors = storage.read_tensors(path, "checkpoint", 1, RunError)
    storage.write_tensors(path, "checkpoint", 1, {**payload, **change}, tensors)
    with pytest.raises(RunError, match="does not fit this search"):
        checkpoint.load(path, TOTAL, 2)


@pytest.mark.parametrize(
    "change",
    [{"structure": False}, {"structure": {"weights": [1], "macs": [1], "units": {}}}, {"unseen": -1}, {"unseen": "2"}],
)
def test_a_checkpoint_whose_level_says_nonsense_of_its_structure_is_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    checkpoint.save(path, _states()[-1])
    payload, tensors = storage.read_tensors(path, "checkpoint", 1, RunError)
    records = [{**record, **change} for record in payload["records"]]
    storage.write_tensors(path, "checkpoint", 1, {**payload, "records": records}, tensors)
    with pytest.raises(RunError, match="does not fit this search"):
        checkpoint.load(path, TOTAL, 2)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_checkpoint_of_other_seeds_is_refused(runs: int, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "checkpoint", _states()[-1])
    with pytest.raises(RunError, match=f"not of {runs} run"):
        checkpoint.load(tmp_path / "checkpoint", TOTAL, runs)


def test_a_checkpoint_with_importances_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint.save(path, State(importance=Scores(torch.rand(2, 11), torch.rand(2, 9))))
    with pytest.raises(RunError, match="does not fit this search"):
        checkpoint.load(path, TOTAL, 2)
    checkpoint.save(path, State(importance=Scores(torch.rand(2, 11), torch.rand(2, 5))))
    payload, tensors = storage.read_tensors(path, "checkpoint", 1, RunError)
    storage.write_tensors(path, "checkpoint", 1, payload, {**tensors, "importance.edges": torch.rand(3)})
    with pytest.raises(RunError, match="does not fit this search"):
        checkpoint.load(path, TOTAL, 2)


def test_a_ticket_is_no_checkpoint(tmp_path: Path) -> None:
    storage.write_tensors(tmp_path / "file", "ticket", 1, {}, {})
    with pytest.raises(RunError, match="not an aceglt checkpoint file"):
        checkpoint.load(tmp_path / "file", TOTAL, 2)
