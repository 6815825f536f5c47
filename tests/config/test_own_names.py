"""The user's own parts, as objects and by name."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from aceglt.config import Config, resolve
from aceglt.config.own import Own, is_own, load, name_of, take
from aceglt.errors import ConfigError
from aceglt.methods import Ace, Level, Random, Selection
from aceglt.methods.build import build_method


@dataclass(frozen=True)
class Mine:
    name: ClassVar[str] = "mine"
    strength: float = 0.5
    how: Any = "fast"

    def select(self, level: Level) -> Selection:
        return Random().select(level)

    def cost(self, epochs: int) -> int:
        return 0


def function() -> None: ...


HERE = f"{__name__}:"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory that is not on the path, and is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_names_are_module_and_qualname() -> None:
    assert name_of(Mine) == name_of(Mine()) == name_of(functools.partial(Mine, 2)) == HERE + "Mine"
    assert name_of(function) == HERE + "function"
    assert is_own(name_of(lambda: None))
    assert not any(map(is_own, ("gcn", "a:", ":b", "a b:c", "a:b:c")))


def test_a_name_is_looked_up_in_the_current_directory_too(folder: Path) -> None:
    (folder / "mine_1.py").write_text("class Outer:\n    class Inner: pass\n")
    assert load("mine_1:Outer.Inner", "backbone").__qualname__ == "Outer.Inner"


def test_a_file_in_the_current_directory_hides_no_installed_module(folder: Path) -> None:
    (folder / "fractions.py").write_text("raise RuntimeError")
    sys.modules.pop("fractions", None)
    assert load("fractions:Fraction", "method")(1, 2) == 0.5


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:Net", "backbone 'no_such_module:Net': cannot import no_such_module .*ModuleNotFoundError"),
        ("mine_2:Net", "cannot import mine_2 .*ZeroDivisionError"),
        ("json:Net", "json has no 'Net'"),
        ("json:decoder.Net", r"json has no 'decoder\.Net'"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_the_reason(name: str, reason: str, folder: Path) -> None:
    (folder / "mine_2.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match=reason):
        load(name, "backbone")


def test_objects_are_kept_and_named() -> None:
    names, own = take({"backbone": Mine, "loss": function, "metric": HERE + "function", "method": "ugs", "levels": 3})
    assert names == {
        "backbone": HERE + "Mine",
        "loss": HERE + "function",
        "metric": HERE + "function",
        "method": "ugs",
        "levels": 3,
    }
    assert own == Own(backbone=Mine, loss=function, metric=function)


def test_the_options_of_a_methods_instance_are_recorded() -> None:
    names, own = take({"method": Mine(strength=2)})
    assert names == {"method": HERE + "Mine", "method_options": {"strength": 2, "how": "fast"}}
    assert build_method(resolve(**names), own) is own.method
    with pytest.raises(ConfigError, match="this one is an instance already"):
        take({"method": Mine(), "method_options": {"strength": 1}})
    with pytest.raises(ConfigError, match="option how must be a number, text or None"):
        take({"method": Mine(how=function)})


def test_a_built_in_method_given_as_an_object_keeps_its_short_name() -> None:
    names, own = take({"method": Ace(rounds=2)})
    config = resolve("paper", **names)
    assert config.method == "ace"
    assert build_method(config, own) == build_method(config, Own()) == Ace(rounds=2)
    assert take({"method": Ace})[0] == {"method": "ace"}


def test_a_class_of_a_method_gets_its_options() -> None:
    names, own = take({"method": HERE + "Mine", "method_options": {"strength": 3}})
    assert build_method(resolve(**names), own) == Mine(strength=3)
    with pytest.raises(ConfigError, match="has no option 'depth'; its options are strength, how"):
        build_method(resolve(**{**names, "method_options": {"depth": 3}}), own)


def test_something_that_is_no_method_is_refused() -> None:
    names, own = take({"method": HERE + "function"})
    with pytest.raises(ConfigError, match=r"function is no method: it needs a name, select\(level\) and cost"):
        build_method(resolve(**names), own)


def test_a_function_that_chooses_what_is_pruned_stays_out_of_the_configuration() -> None:
    names, own = take({"backbone": Mine, "prunable": callable})
    assert "prunable" not in names
    assert own.prunable is callable
    assert take({"prunable": "first.*"})[0] == {"prunable": ["first.*"]}


def test_a_configuration_holds_own_names_and_patterns() -> None:
    config = Config(backbone="a:B", method="a:C", loss="a:d", metric="a:e", prunable=("first.*", "x"))
    assert Config.from_dict(config.to_dict()) == config
    assert config.to_dict()["prunable"] == ["first.*", "x"]
    assert resolve(backbone="a:B", prunable=["x"]).pruning.prunable == ("x",)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"backbone": "mlp"}, "unknown backbone 'mlp'; known are gcn.*your own as module:attribute"),
        ({"method": "a:"}, "unknown method 'a:'"),
        ({"loss": "mse"}, "loss must be module:function, found mse"),
        ({"metric": "f1"}, "unknown metric 'f1'; known are accuracy.*your own as module:attribute"),
        ({"prunable": ["x"]}, "prunable is for a backbone of your own; gcn is built in"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        resolve(**settings)
