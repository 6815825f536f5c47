"""A ticket of the user's own model: every form of it gives what the search gives."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from own_models import LAYERS, Normed, Tied
from safetensors.torch import save
from samples import tiny_data
from ticket_samples import code_of, without_aceglt
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN
from typer.testing import CliRunner

import aceglt
from aceglt.cli import app
from aceglt.config.own import Own
from aceglt.datasets import GraphData, save_npz
from aceglt.errors import ConfigError, TicketError
from aceglt.problems import build_problem
from aceglt.searches.levels import outputs
from aceglt.training.setup import build_backbone

QUICK: dict[str, Any] = {"method": "random", "levels": 2, "epochs": 3, "seeds": 1, "axis": "joint", "device": "cpu"}


def data() -> Data:
    return Data(**vars(tiny_data()))


def ticket_of(model: Any, **settings: Any) -> aceglt.Ticket:
    return aceglt.search(data(), backbone=model, tickets="all", **{**QUICK, **settings}).tickets[-1]


def searched(ticket: aceglt.Ticket, model: Any) -> Tensor:
    """What the search itself computes: masks on the user's module by functional_call."""
    problem = build_problem(ticket.config, data())
    backbone = build_backbone(ticket.config, problem, Own(backbone=model))
    return outputs(problem, backbone, ticket.trained, ticket.masks, "test")[0].softmax(dim=-1)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_module_with_the_tickets_weights_predicts_what_the_search_does(layer: str, tmp_path: Path) -> None:
    model = LAYERS[layer]
    ticket = ticket_of(model)
    ticket.save(tmp_path / "ticket")
    again = aceglt.Ticket.load(tmp_path / "ticket")
    wanted = searched(ticket, model)
    assert torch.allclose(again.predict(data(), backbone=model), wanted, atol=1e-6)
    state = again.state_dict()
    zeros = sum(int((state[name] == 0).sum()) for name in again.names.prunable)  # type: ignore[union-attr]
    assert zeros >= ticket.masks.total.weights - ticket.masks.alive.weights
    module = model(12, 3)
    module.load_state_dict(state, strict=again.names is not None and not again.names.unused)
    assert torch.equal(module.eval().state_dict()[next(iter(state))], state[next(iter(state))])


def test_a_lazy_module_gets_its_shapes_from_the_ticket() -> None:
    def lazy() -> GCN:
        return GCN(-1, 6, 2, 3)

    ticket = ticket_of(lazy)
    assert torch.allclose(ticket.predict(data(), backbone=lazy), searched(ticket, lazy), atol=1e-6)


def test_an_instance_is_copied_and_may_be_trained() -> None:
    model = GCN(12, 6, 2, 3)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    ticket = ticket_of(model)
    module = ticket.model(model)
    assert module is not model
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    pruned = ticket.apply(data())
    module(pruned.x, pruned.edge_index).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_a_module_with_tied_parts_is_measured_by_what_it_has_once() -> None:
    ticket = ticket_of(Tied)
    assert ticket.names is not None
    assert {"second.lin.weight", "third.bias", "last.running_mean"} <= ticket.names.tied.keys()
    found = aceglt.benchmark(ticket, data(), device="cpu", repeats=1, backbone=Tied)["dense"]
    module = Tied(12, 3)
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    assert found.file_bytes == len(save(state))


def test_bench_compares_the_module_with_itself() -> None:
    ticket = ticket_of(Normed)
    found = aceglt.benchmark(ticket, data(), device="cpu", repeats=1, backbone=Normed)
    assert "model.prepare" not in repr(found)  # which the module does not have
    assert [row.variant for row in found.rows] == ["dense", "ticket"]
    assert found["ticket"].edges < found["dense"].edges
    assert "as fast as dense" in repr(found)
    assert "dense is your own module with nothing pruned" in repr(found)
    assert (found["ticket"].parameters, found["dense"].parameters) == (ticket.masks.alive.weights, ticket.total.weights)


def test_another_model_is_refused_in_one_line() -> None:
    ticket = ticket_of(Normed)
    for other in (LAYERS["sage"], LAYERS["gat"], GCN(12, 5, 2, 3)):
        with pytest.raises(TicketError, match="is not the ticket's model"):
            ticket.model(other)
    wider = ticket_of(GCN(12, 5, 2, 3))
    with pytest.raises(TicketError, match=r"model: convs\.0\.lin\.weight is \[6, 12\], the ticket's \[5, 12\], "):
        wider.model(GCN(12, 6, 2, 3))
    with pytest.raises(TicketError, match=r"your own backbone .*:Normed; to run that code, name it again"):
        ticket.model()
    with pytest.raises(TicketError, match=r"<lambda>; to run that code, give it again from Python"):
        ticket_of(lambda i, o: GCN(i, 5, 2, o)).model()
    built_in = aceglt.search(data(), **QUICK).tickets[0]
    with pytest.raises(ConfigError, match="built-in backbone"):
        built_in.model(Normed)


def test_what_a_ticket_names_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('code of a ticket was run')")
    monkeypatch.chdir(tmp_path)
    ticket = ticket_of(Normed)
    trap = replace(ticket, config=ticket.config.replace(backbone="trap:Net"))
    trap.save(tmp_path / "ticket")
    loaded = aceglt.Ticket.load(tmp_path / "ticket")
    assert loaded.state_dict().keys() == ticket.state_dict().keys()
    for use in (loaded.model, lambda: loaded.predict(data()), lambda: loaded.export(tmp_path / "out")):
        with pytest.raises(TicketError, match="trap:Net"):
            use()


@pytest.mark.parametrize(
    "change",
    [{"prunable": []}, {"other": [["x", [2, "y"]]]}, {"unused": None}, {"prunable": 3}, {"tied": {"a": "b"}}],
    ids=str,
)
def test_names_that_do_not_fit_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    from aceglt.tickets.own import Names

    ticket = ticket_of(Normed)
    assert ticket.names is not None
    plain = ticket.names.plain()
    sizes = ticket.masks.total.weights, ticket.trained.other.numel()
    assert Names.read(json.loads(json.dumps(plain)), *sizes) == ticket.names
    with pytest.raises((ValueError, TypeError)):
        Names.read({**plain, **change}, *sizes)


def test_exported_weights_run_without_aceglt(tmp_path: Path) -> None:
    ticket = ticket_of(Normed)
    folder = ticket.export(tmp_path / "served", backbone=Normed)
    assert {path.name for path in folder.iterdir()} == {"README.md", "edge_index.pt", "state_dict.pt"}
    given = {"x": data().x}
    with without_aceglt(folder, "own_models"):
        exec(code_of(folder), given)
    found = given["outputs"].softmax(dim=-1)
    assert torch.allclose(found, ticket.predict(data(), backbone=Normed), atol=1e-6)


def test_a_traced_module_gives_the_same(tmp_path: Path) -> None:
    ticket = ticket_of(LAYERS["sage"])
    folder = ticket.export(tmp_path / "served", "torch-export", backbone=LAYERS["sage"])
    model = torch.export.load(folder / "model.pt2").module()
    pruned = ticket.apply(data())
    found = model(pruned.x, pruned.edge_index).softmax(dim=-1)
    assert torch.allclose(found, ticket.predict(data(), backbone=LAYERS["sage"]), atol=1e-6)


def test_a_module_of_ones_own_goes_to_onnx(tmp_path: Path) -> None:
    ticket, model = ticket_of(LAYERS["sage"]), LAYERS["sage"]
    folder = ticket.export(tmp_path / "served", "onnx", backbone=model)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    pruned = ticket.apply(data())
    found = session.run(None, {"x": pruned.x.numpy(), "edge_index": pruned.edge_index.numpy()})[0]
    wanted = ticket.predict(data(), backbone=model)
    assert torch.allclose(torch.from_numpy(found).softmax(dim=-1), wanted, atol=1e-5)


def test_a_compact_module_is_smaller_and_the_same_or_says_that_it_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ticket = ticket_of(Normed, prune_model=0.8)
    small, wide = (ticket.model(Normed, compact=compact) for compact in (True, False))
    pruned = ticket.apply(data())
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in wide.parameters())
    assert torch.allclose(small(pruned.x, pruned.edge_index), wide(pruned.x, pruned.edge_index), atol=1e-5)
    assert not caplog.records
    attends = LAYERS["gatv2"]
    ticket_of(attends).model(attends, compact=True)
    assert "no dead hidden unit can be removed" in caplog.text


def test_a_traced_module_that_takes_weights_of_edges_runs_as_its_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LAYERS["gcn weighted"]
    ticket = ticket_of(model)
    folder = ticket.export(tmp_path / "served", "torch-export", backbone=model)
    code = code_of(folder)
    assert "edge_weight=" in code
    found: dict[str, Any] = {"x": data().x}
    monkeypatch.chdir(folder)
    exec(code, found)
    assert torch.allclose(found["outputs"].softmax(dim=-1), ticket.predict(data(), backbone=model), atol=1e-6)


def test_the_commands_take_the_models_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "its_module.py").write_text("from own_models import Normed as MyModel\n")
    names = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
    save_npz(tmp_path / "graph.npz", GraphData("graph", *(data()[name] for name in names)))
    cli, own = CliRunner(), ["--backbone", "its_module:MyModel"]
    options = shlex.split("--dataset graph.npz --method random --epochs 2 --seeds 1 --levels 1 --device cpu --out run")
    assert cli.invoke(app, ["search", *options, *own]).exit_code == 0
    shown = cli.invoke(app, ["show", str(next((tmp_path / "run" / "tickets").iterdir()))]).stdout
    assert "your own its_module:MyModel on graph.npz" in shown.replace("\n", " ")
    assert "hidden" not in shown
    for line in ("predict run --out p.csv", "bench run --repeats 1", "export run served"):
        words = shlex.split(line)
        refused = cli.invoke(app, words)
        assert refused.exit_code == 2, refused.output
        assert "--backbone its_module:MyModel" in refused.stderr
        done = cli.invoke(app, [*words, *own])
        assert done.exit_code == 0, done.output
    refused = cli.invoke(app, shlex.split("export run other --format tflite"))
    assert refused.stderr == "error: unknown format 'tflite'; known are pyg, torch-export, onnx, ticket\n"
