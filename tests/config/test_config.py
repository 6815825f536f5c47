"""Settings: presets hold the published numbers, choices win over them, and nothing unknown gets in."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict
from inspect import get_annotations
from typing import Any

import pytest

from aceglt.config import METHOD_OPTIONS, PRESETS, SETTINGS, STEERING, Config, Stopping, Training, difference, resolve
from aceglt.config.configuration import GROUPS
from aceglt.config.fields import settings_of
from aceglt.config.groups import (
    BACKBONE_OPTIONS,
    TASK_OPTIONS,
    BackboneOptions,
    GatOptions,
    LayerOptions,
    LinkOptions,
    ResgcnOptions,
)
from aceglt.config.methods import AceOptions
from aceglt.errors import ConfigError
from aceglt.methods import METHODS, Ace

TABLE_S2 = {  # decay, λ1, λ2, learning rate, as printed
    "cora": (6e-5, 2e-3, 2e-3, 6e-2),
    "citeseer": (5e-4, 1e-6, 1e-4, 1e-2),
    "pubmed": (5e-4, 1e-2, 1e-2, 1e-2),
}
UGS_GCN = {"cora": (8e-5, 1e-2, 1e-2, 8e-3), "citeseer": (5e-4, 1e-2, 1e-2, 1e-2), "pubmed": (5e-4, 1e-6, 1e-3, 1e-2)}


def training(config: Config) -> tuple[float, ...]:
    return config.training.weight_decay, config.scoring.lambda_edges, config.scoring.lambda_weights, config.training.lr


@pytest.mark.parametrize("dataset", TABLE_S2)
@pytest.mark.parametrize("spelling", [str.lower, str.title])
def test_preset_paper_is_table_s2(dataset: str, spelling: Any) -> None:
    config = resolve("paper", dataset=spelling(dataset))
    assert training(config) == TABLE_S2[dataset]
    assert (config.training.epochs, config.scoring.signal, config.preset) == (200, "labels", "paper")
    assert (config.scoring.decay_scores, config.pruning.balance, config.scoring_epochs) == (True, 0.0, 200)
    assert not config.scoring.clamp_scores
    published = {
        "reading": "topk",
        "rounds": 6,
        "exchange": 0.05,
        "temperature": 0.0,
        "replacement": False,
        "keep": "last",
    }
    assert Ace(**config.method_options) == Ace(**published)


@pytest.mark.parametrize("dataset", UGS_GCN)
def test_preset_ugs_is_what_its_authors_published(dataset: str) -> None:
    config = resolve("ugs", dataset=dataset)
    assert config.method == "ugs"
    assert training(config) == UGS_GCN[dataset]
    assert (config.training.epochs, config.scoring.signal) == (200, "labels")
    assert (config.scoring.decay_scores, config.pruning.balance, config.scoring_epochs) == (True, 0.0, 200)
    assert not config.scoring.clamp_scores
    assert config.method_options == {"one_shot": False}


def test_the_default_is_ace_with_a_teacher() -> None:
    config = resolve()
    assert config == Config()
    assert (config.method, config.backbone) == ("ace", "gcn")
    assert (config.scoring.signal, config.scoring.beta) == ("teacher", 10.0)
    assert training(config) == (5e-4, 0.0, 0.0, 1e-2)
    assert (config.scoring.decay_scores, config.scoring.teacher_temperature) == (False, 0.03)
    assert (config.scoring.teacher_smoothing, config.pruning.balance, config.pruning.degree_bonus) == (0.9, 0.75, 2.0)
    assert config.scoring_epochs == 60
    assert resolve(epochs=7).scoring_epochs == 7
    assert (config.training.epochs, config.backbone_options.hidden, config.stopping.levels) == (200, 512, 10)
    pruning = config.pruning
    assert (pruning.prune_model, pruning.prune_graph) == (0.2, 0.05)
    assert (pruning.fixed_model, pruning.fixed_graph) == (0.2, 0.05)
    assert config.test


@pytest.mark.parametrize("preset", ["paper", "ugs"])
def test_a_dataset_that_the_source_does_not_name_trains_with_the_defaults(preset: str) -> None:
    config = resolve(preset, dataset="mine.npz")
    assert (config.training.lr, config.training.weight_decay) == (Training.lr, Training.weight_decay)
    assert (config.scoring.lambda_edges, config.scoring.lambda_weights) == (1e-4, 1e-4)


def test_preset_tuned_is_what_the_design_measured() -> None:
    config = resolve("tuned", dataset="some/folder/Amazon-Computers.npz")
    o, t = config.backbone_options, config.training
    assert isinstance(o, LayerOptions)
    assert (o.layers, o.hidden, o.norm, o.skip, o.output, o.dropout) == (3, 512, "layer", "none", "linear", 0.5)
    assert (t.lr, t.weight_decay, t.epochs, t.early_stopping) == (1e-3, 5e-5, 1000, None)
    assert resolve("tuned", dataset="coauthor-cs").backbone_options != o
    assert resolve("tuned", dataset="cora") == resolve(dataset="cora").replace(preset="tuned")


@pytest.mark.parametrize(
    ("choices", "epochs"),
    [
        ({}, 300), ({"method": "ugs"}, 300), ({"backbone": "sage"}, 300), ({"dataset": "cora"}, 60),
        ({"method": "magnitude"}, None), ({"method": "random"}, 60), ({"task": "link"}, None), ({"score_epochs": 7}, 7),
    ],
)  # fmt: skip
def test_preset_tuned_trains_the_scores_of_deep_networks_for_longer(choices: Any, epochs: int | None) -> None:
    assert resolve("tuned", **{"dataset": "amazon-photo", **choices}).scoring.score_epochs == epochs


@pytest.mark.parametrize("backbone", BACKBONE_OPTIONS)
def test_preset_tuned_is_sound_on_an_unknown_graph(backbone: str) -> None:
    config = resolve("tuned", dataset="mine.npz", backbone=backbone)
    assert (config.training.epochs, config.training.early_stopping) == (1000, 200)
    if isinstance(config.backbone_options, LayerOptions):
        assert (config.backbone_options.norm, config.backbone_options.skip) == ("layer", "linear")
    link = resolve("tuned", dataset="mine.npz", backbone=backbone, task="link")
    assert (link.training.lr, link.training.weight_decay) == (0.01, 0.0)


def test_preset_quick_is_shorter() -> None:
    quick = resolve("quick")
    assert quick.training.epochs < Training.epochs
    assert quick.stopping.levels < Stopping.levels
    assert quick.scoring.signal == "teacher"
    assert quick.method_options["rounds"] == 1
    assert resolve("quick", method="ugs").method_options == {"one_shot": False}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHOD_OPTIONS)
def test_every_preset_fits_every_method(preset: str, method: str) -> None:
    config = resolve(preset, method=method)
    assert config.preset == preset
    assert METHODS[method](**config.method_options).name == method


@pytest.mark.parametrize("preset", PRESETS)
def test_choices_win_over_the_preset(preset: str) -> None:
    made = {"lr": 0.123, "weight_decay": 0.0, "lambda_edges": 0.5, "levels": 3, "epochs": 7, "signal": "labels"}
    config = resolve(preset, dataset="cora", **made)
    assert {name: config.flat()[name] for name in made} == made


def test_method_options_are_merged_with_the_preset() -> None:
    options = resolve("paper", method_options={"rounds": 3, "temperature": 0.5}).method_options
    assert (options["rounds"], options["temperature"], options["exchange"]) == (3, 0.5, 0.05)
    options = resolve("paper", method_options={"reading": "literal", "rounds": 3}).method_options
    assert (options["rounds"], options["temperature"], options["replacement"]) == (3, 1.0, True)


@pytest.mark.parametrize(
    ("reading", "wanted"),
    [
        ("literal", {"rounds": 6, "exchange": 0.05, "temperature": 1.0, "replacement": True, "keep": "last"}),
        ("topk", {"rounds": 6, "exchange": 0.05, "temperature": 0.0, "keep": "last", "hand_on": True}),
        ("code", {"rounds": 6, "exchange": 0.002, "temperature": 0.0, "refine_epochs": 20, "keep": "best",
                  "hand_on": False, "pruned_graph": "full"}),
    ],
)  # fmt: skip
def test_a_reading_is_a_set_of_options_and_stays_one_when_it_is_read_back(reading: str, wanted: dict[str, Any]) -> None:
    config = resolve(method_options={"reading": reading})
    assert config.method_options.items() >= {"reading": reading, **wanted}.items()
    assert Config.from_dict(config.to_dict()) == config
    assert resolve(method_options={"reading": reading, "rounds": 2}).method_options["rounds"] == 2


@pytest.mark.parametrize("reading", ["literal", "topk", "code"])
def test_a_reading_without_its_options_is_refused(reading: Any) -> None:
    with pytest.raises(ConfigError, match=f"reading '{reading}' is a name for rounds"):
        AceOptions(reading=reading)


def test_a_reading_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="ace: unknown reading 'published'; known are default, literal, topk, code"):
        resolve(method_options={"reading": "published"})


def test_choices_of_none_are_not_made() -> None:
    assert resolve("ugs", dataset="cora", lr=None, levels=None) == resolve("ugs", dataset="cora")


@pytest.mark.parametrize(("given", "expected"), [(3, (0, 1, 2)), ([5, 2], (5, 2)), ((7,), (7,)), (range(2), (0, 1))])
def test_seeds_are_a_number_or_a_list(given: Any, expected: tuple[int, ...]) -> None:
    assert resolve(seeds=given).seeds == expected


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ((), "at least one seed"),
        ((1, 2, 1), "must differ from each other, found 1, 2, 1"),
        ((-1,), "whole numbers from 0, found -1"),
        ((0.5,), "a whole number, found 0.5"),
        (0, "seeds must be 1 or more, found 0"),
    ],
)
def test_bad_seeds_are_refused(seeds: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(seeds=seeds)


def test_json_gives_back_the_same_configuration() -> None:
    config = resolve("paper", dataset="cora", seeds=(4, 9), axis="joint", target_graph=0.3, patience=2, test=False)
    read = Config.from_dict(json.loads(json.dumps(config.to_dict())))
    assert read == config
    assert read.to_dict() == config.to_dict()
    assert set(config.to_dict()) == set(SETTINGS)


def test_a_configuration_cannot_be_changed() -> None:
    config = Config()
    with pytest.raises(FrozenInstanceError):
        config.training.lr = 1.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        config.training = Training()  # type: ignore[misc]


def test_unknown_settings_are_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'epoch'; did you mean 'epochs'"):
        resolve(epoch=3)
    with pytest.raises(ConfigError, match="unknown setting 'weight_decai'; did you mean 'weight_decay'"):
        Config.from_dict({"weight_decai": 3})
    with pytest.raises(ConfigError, match="unknown setting 'zzz'; known are dataset, backbone"):
        resolve(zzz=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", "many"),
        ("epochs", 2.5),
        ("epochs", True),
        ("lr", "0.1"),
        ("lr", None),
        ("test", 1),
        ("seeds", 3),
        ("target_model", "half"),
        ("method_options", [1]),
        ("dataset", 5),
    ],
)
def test_values_of_another_type_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name} must be .*, found ") as error:
        Config.from_dict({name: value})
    assert repr(value) in str(error.value)


def test_whole_numbers_are_fine_where_fractions_are_meant() -> None:
    assert Config.from_dict({"beta": 1, "patience": None, "target_model": None}).scoring.beta == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("axis", "edges", "unknown axis 'edges'; known are model, graph, joint"),
        ("signal", "both", "unknown signal 'both'; known are teacher, labels"),
        ("backbone", "mlp", "unknown backbone 'mlp'"),
        ("method", "magic", "unknown method 'magic'"),
        ("task", "graph", "unknown task 'graph'"),
        ("score_epoch", "first", "unknown score_epoch 'first'; known are best, last"),
        ("levels", -1, "levels must be 0 or more, found -1"),
        ("epochs", 0, "epochs must be 1 or more, found 0"),
        ("hidden", 0, "hidden must be from 1 to 1048576, found 0"),
        ("layers", 0, "layers must be from 1 to 1000, found 0"),
        ("heads", 3, "heads is for the backbone gat; gcn does not have it"),
        ("dropout", 1.0, "dropout must be 0 or more and below 1, found 1.0"),
        ("norm", "graph", "unknown norm 'graph'; known are none, layer, batch"),
        ("checkpoint_blocks", True, "checkpoint_blocks is for the backbone resgcn; gcn does not have it"),
        ("precision", "float16", "unknown precision 'float16'; known are float32, bfloat16"),
        ("partitions", 0, "partitions must be 1 or more, found 0"),
        ("parts_per_step", 0, "parts_per_step must be 1 or more, found 0"),
        ("partition_by", "chance", "unknown partition_by 'chance'; known are random, clusters"),
        ("lr", 0.0, "lr must be above 0, found 0.0"),
        ("lr", float("nan"), "lr must be finite, found nan"),
        ("lr", float("inf"), "lr must be finite, found inf"),
        ("weight_decay", -1e-3, "weight_decay must be 0 or more"),
        ("lambda_edges", -1.0, "lambda_edges must be 0 or more"),
        ("lambda_weights", float("nan"), "lambda_weights must be finite"),
        ("degree_bonus", -1.0, "degree_bonus must be 0 or more"),
        ("beta", -1.0, "beta must be 0 or more"),
        ("teacher_temperature", 0.0, "teacher_temperature must be above 0"),
        ("teacher_smoothing", 1.0, "teacher_smoothing must be 0 or more and below 1"),
        ("score_epochs", 0, "score_epochs must be 1 or more"),
        ("balance", 1.5, "balance must be from 0 to 1, found 1.5"),
        ("prune_model", 1.0, "prune_model must be between 0 and 1, found 1.0"),
        ("prune_graph", 0.0, "prune_graph must be between 0 and 1, found 0.0"),
        ("fixed_model", 1.0, "fixed_model must be 0 or more and below 1, found 1.0"),
        ("fixed_graph", -0.1, "fixed_graph must be 0 or more and below 1"),
        ("target_model", 1.5, "target_model must be between 0 and 1, found 1.5"),
        ("patience", 0, "patience must be 1 or more, found 0"),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(**{name: value})


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'fast'; known are default, tuned, paper, ugs, quick"):
        resolve("fast")


@pytest.mark.parametrize(("axis", "target"), [("graph", "target_model"), ("model", "target_graph")])
def test_a_target_that_the_axis_never_reaches_is_refused(axis: str, target: str) -> None:
    with pytest.raises(ConfigError, match=f"{target} never changes on the {axis} axis"):
        resolve(axis=axis, **{target: 0.5})
    assert getattr(resolve(axis="joint", **{target: 0.5}).stopping, target) == 0.5


def test_a_target_brings_enough_levels_to_reach_it_unless_levels_are_chosen() -> None:
    assert 0.8 ** resolve(target_model=0.999).stopping.levels < 0.001
    assert 0.95 ** resolve(axis="graph", target_graph=0.999).stopping.levels < 0.001
    assert resolve(target_model=0.9, levels=4).stopping.levels == 4


def test_a_run_may_be_continued_with_other_stops_and_nothing_else() -> None:
    first, longer = resolve(levels=3), resolve(levels=9, target_model=0.9, patience=4)
    assert first.identity() == longer.identity()
    assert set(first.to_dict()) - set(first.identity()) == set(STEERING)
    assert first.identity() != resolve(levels=3, lr=0.5).identity()


def test_difference_names_what_changed() -> None:
    old, new = resolve(lr=0.1).to_dict(), resolve(lr=0.2, seeds=1).to_dict()
    assert difference(old, new) == ["lr: 0.1 → 0.2", "seeds: [0, 1, 2] → [0]"]
    assert difference(old, old) == []


def test_the_difference_of_methods_names_the_options_that_differ() -> None:
    four, two = (resolve(method="ace", method_options={"rounds": rounds}).identity() for rounds in (4, 2))
    assert difference(four, two) == ["rounds: 4 → 2"]
    assert difference(resolve(method="random", signal="teacher").identity(), four) == ["method: random → ace"]


def test_the_number_of_a_split_may_be_a_number() -> None:
    assert resolve(split=2).identity() == resolve(split="2").identity()
    assert Config(split=2) == Config(split="2")
    with pytest.raises(ConfigError, match=r"split must be text, found 1\.5"):
        resolve(split=1.5)


def test_resgcn_has_28_layers_of_128_units_unless_told() -> None:
    assert resolve(backbone="resgcn").backbone_options == ResgcnOptions(128, layers=28)
    assert resolve(backbone="resgcn", hidden=64, layers=7).backbone_options == ResgcnOptions(64, layers=7)
    assert resolve(backbone="gat").backbone_options == GatOptions(512)


def test_each_option_of_a_method_is_recorded_whether_it_was_chosen_or_not() -> None:
    for method in METHOD_OPTIONS:
        assert resolve(method=method).method_options == asdict(METHODS[method]())


def test_ace_without_rounds_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError, match="ace: rounds must be 1 or more, found 0; that is ugs; use method ugs"):
        resolve(method_options={"rounds": 0})


def test_the_preset_ugs_means_the_method_unless_one_is_given() -> None:
    assert resolve("ugs").method == "ugs"
    assert resolve("ugs", method="ace").method == "ace"


def test_replace_changes_settings_of_any_group_and_checks_them() -> None:
    config = resolve(seeds=2)
    changed = config.replace(lr=0.5, axis="joint", hidden=8, split="random:1")
    assert changed == resolve(seeds=2, lr=0.5, axis="joint", hidden=8, split="random:1")
    assert config.replace(task="link").task_options == LinkOptions()
    assert config.replace(method="ugs").method_options == asdict(METHODS["ugs"]())
    with pytest.raises(ConfigError, match="lr must be above 0"):
        config.replace(lr=0.0)


def test_a_setting_is_written_once() -> None:
    """Another backbone may have another default, of the same setting."""
    kinds = [Config, *GROUPS.values(), BackboneOptions, LayerOptions, *{*TASK_OPTIONS.values()}]
    written = [name for kind in kinds for name in settings_of(kind) if name in get_annotations(kind)]
    assert len(set(written)) == len(written)
    backbones = [name for kind in BACKBONE_OPTIONS.values() for name in settings_of(kind)]
    assert {*written, *backbones} == set(SETTINGS)
    for kind in BACKBONE_OPTIONS.values():
        assert all(part.metadata == SETTINGS[name].metadata for name, part in settings_of(kind).items())
    assert all(field.metadata["help"] for field in SETTINGS.values())
