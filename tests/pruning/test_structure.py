"""Units go as a whole: the least important first, with a floor per layer, until few enough weights are alive."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aceglt.backbones import BACKBONES, GCN, Backbone
from aceglt.config import Config
from aceglt.errors import ConfigError
from aceglt.numerics import rng
from aceglt.pruning.structure import Structure, Units

UNITS = ("units",)
BOTH = ("units", "features")


def cut(units: Units, importance: Tensor, keep: int, seed: int = 0) -> Tensor:
    alive = torch.ones(1, units.count, dtype=torch.bool)
    return units.cut(alive, importance.double().unsqueeze(0), keep, rng.keys([seed], "cut"))[0]


def widths(units: Units, alive: Tensor) -> dict[str, int]:
    return {layer: counts[0] for layer, counts in units.widths(units.weights(alive.unsqueeze(0))).items()}


def test_the_lowest_mean_score_over_incoming_and_outgoing_weights_goes_first() -> None:
    backbone = GCN(2, 1, 3)  # units have 2 incoming weights and an outgoing one
    units = Units(backbone, Structure(UNITS))
    scores = torch.tensor([[1.0, 5.0, 2.0, 1.0, -5.0, 2.0, 7.0, 1.0, -1.0]])  # means 3, 11/3, 5/3
    means = units.means(scores, torch.ones_like(scores, dtype=torch.bool))
    torch.testing.assert_close(means, torch.tensor([[3.0, 11 / 3, 5 / 3]], dtype=torch.float64))
    assert cut(units, means[0], 6).tolist() == [True, True, False]
    assert cut(units, means[0], 5).tolist() == [False, True, False]  # 6 are too many, so the target is passed
    alive = torch.tensor([[True] * 3 + [False] * 3 + [True] * 3])  # a dead feature has no part in a mean
    torch.testing.assert_close(units.means(scores, alive)[0, 0], torch.tensor(4.0, dtype=torch.float64))


def test_masks_of_units_are_the_weights_between_them() -> None:
    units = Units(GCN(3, 2, 2), Structure(BOTH))
    alive = torch.tensor([[True, False, True, False, True]])  # two of the features, one of the units
    expected = [[False, True], [False, False], [False, True]], [[False, False], [True, True]]
    assert units.weights(alive).tolist() == [[value for matrix in expected for row in matrix for value in row]]
    assert torch.equal(units.alive(units.weights(alive)), alive)


@pytest.mark.parametrize(
    ("backbone", "options", "names", "biases"),
    [
        ("gcn", {"layers": 3}, {"features", "layer0", "layer1"}, set()),
        ("gin", {"layers": 3, "skip": "identity"}, {"features", "layer0"}, {"layer0.bias", "layer1.bias"}),
        ("sage", {"layers": 3, "jumping": "cat"}, {"features", "layer0", "layer1"}, {"layer0.bias"}),
        ("gat", {"heads": 2}, {"features", "layer0.head0", "layer0.head1"}, {"layer0.source", "layer0.bias"}),
        ("resgcn", {"layers": 3}, {"features", "encoder", "layers"}, {"layer1.bias", "norm2.shift"}),
    ],
)
def test_a_backbone_says_which_units_its_weights_belong_to(
    backbone: str, options: dict[str, Any], names: set[str], biases: set[str]
) -> None:
    made = BACKBONES[backbone](5, 3, 4, **options)
    assert set(made.widths) == names
    assert {name for name, _ in made.prunable.shapes} <= set(made.sides)
    for name, (rows, columns) in made.prunable.shapes:
        for axis, size in zip(made.sides[name], (rows, columns), strict=True):
            assert not axis or sum(made.widths[layer] for layer in axis) == size
    for name in biases:
        assert made.sides[name][1]
        assert set(made.sides[name][1]) <= names


def deep() -> Backbone:
    return GCN(6, 2, 8, layers=3)


def test_all_layers_compete_unless_they_are_balanced() -> None:
    importance = torch.cat([torch.arange(8.0), 100 + torch.arange(8.0)])
    free, balanced = (Units(deep(), Structure(UNITS, balance)) for balance in (0.0, 1.0))
    assert widths(free, cut(free, importance, 64)) == {"features": 6, "layer0": 3, "layer1": 8}  # 3·6 + 3·8 + 8·2
    assert widths(balanced, cut(balanced, importance, 64)) == {"features": 6, "layer0": 4, "layer1": 6}  # 24 + 24 + 12


def test_a_layer_may_be_ignored_or_have_a_floor() -> None:
    importance = torch.arange(16.0)
    ignoring = Units(deep(), Structure(UNITS, ignored=("layer0",)))
    assert widths(ignoring, cut(ignoring, importance[8:], 90)) == {"features": 6, "layer0": 8, "layer1": 4}
    floored = Units(deep(), Structure(UNITS, floors={"layer0": 0.6}))
    assert widths(floored, cut(floored, importance, 45)) == {"features": 6, "layer0": 5, "layer1": 2}
    assert floored.least == 5 * 6 + 5 + 2


def test_a_ratio_gives_a_layer_a_larger_share() -> None:
    importance = torch.zeros(16)
    plain, more = (Units(deep(), Structure(UNITS, 1.0, ratios=ratios)) for ratios in ({}, {"layer1": 2.0}))
    before, after = (widths(units, cut(units, importance, 48)) for units in (plain, more))
    assert after["layer1"] > before["layer1"]
    assert after["layer0"] < before["layer0"]


def test_widths_are_rounded_to_multiples() -> None:
    units = Units(GCN(6, 2, 10), Structure(UNITS, round_to=4))
    for keep, width in ((79, 8), (64, 8), (63, 4), (33, 4)):
        assert widths(units, cut(units, torch.arange(10.0), keep))["layer0"] == width
    assert units.least == 4 * 8


def test_equal_units_go_in_an_order_of_the_seed() -> None:
    units = Units(GCN(3, 2, 40), Structure(UNITS))
    first, again, other = (cut(units, torch.ones(40), 100, seed) for seed in (0, 0, 1))
    assert int(first.sum()) == 20
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"structure": "rows"}, "unknown structure 'rows'"),
        ({"round_to": 8}, "round_to is for structured pruning"),
        ({"floors": "layer0=0.5"}, "floors is for structured pruning"),
        ({"structure": "units", "floors": "layer0"}, "floors takes LAYER=NUMBER"),
        ({"structure": "units", "floors": {"layer0": 2}}, "floors: layer0 must be from 0 to 1"),
        ({"structure": "units", "ratios": {"layer0": 0}}, "ratios: layer0 must be above 0"),
        ({"structure": "units", "method": "teddy"}, "method teddy chooses single weights"),
        ({"structure": "units", "backbone": "module:Net"}, "structure is for the built-in backbones"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        Config(**settings)
    assert "\n" not in str(raised.value)


def test_unknown_layers_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="gcn has no layer 'layer9'; it has features, layer0, layer1"):
        Units(deep(), Structure(UNITS, ignored=("layer9",)))
    with pytest.raises(ConfigError, match="no layer whose units may go"):
        Units(GCN(6, 2, 8), Structure(UNITS, ignored=("layer0",)))


def test_options_by_layer_are_texts_or_a_mapping() -> None:
    given = Config(structure="units", floors={"layer0": 0.25}, ignored="layer1")
    assert given == Config(structure="units", floors=["layer0=0.25"], ignored=("layer1",))
    assert Config.from_dict(given.to_dict()) == given
    assert given.label == "ace (teacher, 2 rounds, units)"
