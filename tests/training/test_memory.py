"""Estimates against what training really takes, and what is chosen by them."""

from __future__ import annotations

import gc
import json
import logging
import resource
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from campaign_table import Tell
from samples import generator
from search_samples import command, environment, events, graph, search

from aceglt import runner
from aceglt.backends import Cpu
from aceglt.backends.base import ScoreTraining
from aceglt.backends.cpu.elements import Thresholds
from aceglt.config import Config, Training, resolve
from aceglt.errors import RunError, TrainingError
from aceglt.methods.base import batches
from aceglt.methods.build import build_method
from aceglt.numerics import rng
from aceglt.numerics.csr import stored_bytes
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems.base import Problem
from aceglt.searches.levels import Search, outputs
from aceglt.tickets.bench import Allocations
from aceglt.training import memory as module
from aceglt.training.fit import fit
from aceglt.training.memory import Planner, free_memory, left_to_groups
from aceglt.training.partitions import Parts
from aceglt.training.setup import build_backbone, build_parts

PLENTY = 1 << 50
FEATURES, CLASSES = 16, 5


def large_problem(nodes: int, edges: int, edge_features: int = 0) -> Problem:
    g = generator(0)
    pairs = torch.randint(nodes, (2, edges), generator=g)
    part = torch.arange(nodes) // CLASSES % 3
    data = SimpleNamespace(
        x=torch.randn(nodes, FEATURES, generator=g), edge_index=pairs, y=torch.arange(nodes) % CLASSES,
        train_mask=part == 0, val_mask=part == 1, test_mask=part == 2,
    )  # fmt: skip
    problem = Problem.from_data(data, "large")
    attr = torch.rand(problem.graph.num_edges, edge_features, generator=g) if edge_features else None
    return replace(problem, graph=replace(problem.graph, edge_attr=attr))


def planner(problem: Problem, runs_at_once: int | None = None, **settings: Any) -> Planner:
    config = resolve(**{"hidden": 32, "seeds": 3, "method": "ugs", **settings})
    chosen = frozenset({*settings, *(["runs_at_once"] if runs_at_once else [])})
    method = build_method(config)
    return Planner(problem, build_backbone(config, problem), config, runs_at_once, chosen, batches(method))


def taken(planned: Planner, config: Config, parts: Parts) -> int:
    """Bytes of tensors at the peak of score training and of an evaluation, the data included."""
    problem, backbone = planned.problem, planned.backbone
    start, key = backbone.init([0]), rng.keys([0], "test")
    masks = Masks.full(1, Counts(backbone.prunable.size, problem.graph.num_edges))
    scoring = ScoreTraining(config.scoring.lambda_edges, config.scoring.lambda_weights, True, False, "best")
    data = [t for t in (problem.x, problem.graph.edges, problem.graph.edge_attr) if t is not None]
    backend = Cpu(thresholds=Thresholds(small=0))  # in this thread: allocations sees those of no other
    with Allocations() as allocations:
        fit(
            problem,
            backbone,
            start,
            masks,
            2,
            Training(lr=0.01, weight_decay=0.0),
            key,
            scoring=scoring,
            parts=parts,
            backend=backend,
        )
        outputs(problem, backbone, start, masks, backend=backend)
    return allocations.peak + sum(t.numel() * t.element_size() for t in data)


CASES: list[dict[str, Any]] = [
    {"backbone": "gcn"},
    {"backbone": "gin"},
    {"backbone": "gat", "hidden": 8},
    {"backbone": "resgcn", "layers": 5},
    {"backbone": "resgcn", "layers": 12, "checkpoint_blocks": True},
    {"backbone": "gcn", "layers": 4, "norm": "layer", "output": "linear", "bias": True},
    {"backbone": "gcn", "layers": 4, "norm": "batch", "skip": "identity"},
    {"backbone": "sage", "layers": 3, "norm": "layer", "skip": "linear", "output": "linear"},
    {"backbone": "gat", "hidden": 8, "heads": 4, "layers": 3, "norm": "layer", "skip": "linear"},
    {"backbone": "gcn", "partitions": 4},
    {"backbone": "resgcn", "layers": 5, "partitions": 4},
    {"backbone": "gcn", "partitions": 8, "partition_by": "neighbours", "neighbours": 2, "signal": "labels"},
    {"backbone": "gin", "partitions": 12, "partition_by": "neighbours", "neighbours": 3, "signal": "labels"},
]


SIZES = ((4000, 6000), (2000, 40000))
ESTIMATED = [
    pytest.param(settings, *size, marks=pytest.mark.slow if (i + j) % 2 else ())
    for (i, settings), (j, size) in product(enumerate(CASES), enumerate(SIZES))
]
"""Every case on both graphs; quickly on one of them, by turns."""


@pytest.mark.parametrize(("settings", "nodes", "edges"), ESTIMATED, ids=str)
def test_the_estimate_is_near_what_is_taken(settings: dict[str, Any], nodes: int, edges: int) -> None:
    planned = planner(large_problem(nodes, edges), **settings)
    config = planned.config
    estimate = planned.needed(1, bool(config.backbone_options.checkpoint_blocks), config.training.partitions)
    found = taken(planned, config, build_parts(config))
    assert 0.7 < estimate / found < 1.5


def test_sparse_features_are_counted_by_what_they_take() -> None:
    dense = large_problem(400, 900)
    x = torch.zeros(400, 5000)
    x[:, 0] = 1.0
    plans = [planner(replace(dense, x=made)).needed(1, False, 1) for made in (x, x.to_sparse_csr())]
    assert plans[0] - plans[1] == 4 * 400 * 5000 - stored_bytes(x.to_sparse_csr())


@pytest.mark.gpu
@pytest.mark.parametrize("settings", CASES, ids=str)
def test_the_estimate_is_near_what_a_gpu_takes(settings: dict[str, Any], tell: Tell) -> None:
    """What score training takes of a GPU, data included, above what other tests have left there."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    planned = planner(large_problem(40_000, 200_000).to("cuda"), **settings)
    config, problem, backbone = planned.config, planned.problem, planned.backbone
    start, key = backbone.init([0, 1], "cuda"), rng.keys([0, 1], "test", device="cuda")
    masks = Masks.full(2, Counts(backbone.prunable.size, problem.graph.num_edges), "cuda")
    scoring = ScoreTraining(1e-4, 1e-4, True, False, "best")
    parts = build_parts(config)
    fit(problem, backbone, start, masks, 2, Training(lr=0.01, weight_decay=0.0), key, scoring=scoring, parts=parts)
    needed = planned.needed(2, bool(config.backbone_options.checkpoint_blocks), config.training.partitions)
    ratio = needed / (torch.cuda.max_memory_allocated() - before)
    tell("GPU: plan of memory", str(settings), "planned as taken", trainings=1, times_as_much=max(ratio, 1 / ratio))
    assert 0.5 < ratio < 2.0


def on_gpu(planned: Planner) -> Planner:
    """As if the problem were on a GPU: its sizes are all that is read."""
    problem: Any = SimpleNamespace(
        graph=planned.problem.graph,
        x=planned.problem.x,
        features=planned.problem.features,
        view=planned.problem.view,
        out_features=planned.problem.out_features,
        device=torch.device("cuda"),
    )
    return replace(planned, problem=problem)


def test_everything_at_once_where_it_fits() -> None:
    plan = on_gpu(planner(large_problem(2000, 5000), backbone="resgcn", layers=4)).plan(PLENTY)
    assert (plan.runs_at_once, plan.checkpoint_blocks, plan.partitions) == (None, False, 1)
    assert plan.fits
    assert str(plan).startswith("full batch: about ")


def test_a_gpu_keeps_dense_features_summed_along_arcs() -> None:
    planned = on_gpu(planner(large_problem(2000, 5000), backbone="gcn", hidden=64))
    width = planned.problem.x.shape[1]
    sparse: Any = SimpleNamespace(**{**vars(planned.problem), "features": SimpleNamespace(sparse=True)})
    without = replace(planned, problem=sparse).needed(3, False, 1)
    assert planned.needed(3, False, 1) - without >= 3 * 2000 * width * 4


def test_less_memory_means_fewer_runs_then_checkpointing_then_parts() -> None:
    planned = on_gpu(planner(large_problem(4000, 10000), backbone="resgcn", layers=6))
    plans = list(planned.candidates(PLENTY))
    steps = [(p.runs_at_once, p.checkpoint_blocks, p.partitions) for p in plans]
    assert steps[:6] == [(None, False, 1), (2, False, 1), (1, False, 1), (1, True, 1), (1, True, 2), (1, True, 4)]
    needs = [p.needed for p in plans]
    assert needs == sorted(needs, reverse=True)
    for plan in plans:
        found = planned.plan(int(plan.needed / module.BUDGET) + 1)
        assert (found.runs_at_once, found.checkpoint_blocks, found.partitions) == steps[needs.index(plan.needed)]
    assert 4000 / plans[-1].partitions >= 64


def test_rounds_of_ace_train_two_parts_of_every_run() -> None:
    problem = large_problem(2000, 5000)
    both, alone = (on_gpu(planner(problem, method=method)).plan(PLENTY).needed for method in ("ace", "ugs"))
    assert 1.7 < both / alone <= 2


def test_what_is_chosen_is_kept() -> None:
    problem, little = large_problem(4000, 10000), 1000
    chosen = {"backbone": "resgcn", "layers": 4, "partitions": 3, "checkpoint_blocks": False}
    plan = on_gpu(planner(problem, 2, **chosen)).plan(little)
    assert (plan.runs_at_once, plan.checkpoint_blocks, plan.partitions) == (2, False, 3)
    assert not plan.fits
    assert str(plan).endswith("; this may be too little")


def test_a_smaller_plan_needs_half_as_much() -> None:
    planned = on_gpu(planner(large_problem(4000, 10000), backbone="resgcn", layers=6))
    first = planned.plan(PLENTY)
    second = planned.smaller(first)
    assert second is not None
    assert 2 * second.needed <= first.needed
    assert planned.smaller(list(planned.candidates(PLENTY))[-1]) is None


def test_a_process_takes_more_for_a_larger_graph_and_for_more_seeds() -> None:
    small, large = large_problem(2000, 5000), large_problem(20000, 50000)
    one, many, wide = (planner(p, seeds=n).whole_program() for p, n in ((small, 1), (small, 9), (large, 9)))
    assert planner(small).needed(1, False, 1) < one < many < wide


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["--backbone", "gat", "-m", "rounds=1", "-m", "refine_epochs=2"],
        ["--backbone", "gcn", "-m", "rounds=1", "-m", "refine_epochs=2"],
        ["--backbone", "gat", "--method", "ugs", "--seeds", "1"],
        ["--dataset", "synthetic-arxiv", "--method", "ugs", "--seeds", "1"],
        ["--dataset", "synthetic-arxiv", "--method", "ugs", "--hidden", "128"],
    ],
    ids=" ".join,
)
def test_the_plan_is_within_30_percent_of_what_a_process_takes(settings: list[str], tmp_path: Path, tell: Tell) -> None:
    line = command("search", "--levels", "1", "--epochs", "2", "--device", "cpu", "--out", tmp_path / "run", *settings)
    subprocess.run(line, env=environment(), capture_output=True, check=True)
    found = json.loads((tmp_path / "run" / "environment.json").read_text())
    off = abs(found["needed_memory"] / found["peak_memory"] - 1)
    tell("plan of memory", " ".join(settings), "planned as taken, within 30 %", processes=1, percent_off=100 * off)
    assert off < 0.3


def test_pruning_all_runs_at_once_counts_on_a_cpu() -> None:
    problem = large_problem(2000, 5000)
    one, many = (planner(problem, seeds=n, hidden=512).plan(PLENTY).needed for n in (1, 30))
    assert many - one > 25 * 4 * 4 * (planner(problem, hidden=512).backbone.prunable.size + 5000)


@pytest.mark.parametrize(("seeds", "together"), [(1, 3), (2, 2), (4, 2), (5, 3)])
def test_a_training_that_takes_turns_with_others_counts_on_a_cpu(
    seeds: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads, and as many trainings as there are seeds, two parts of each, or three tickets of each."""
    planned, counted, needed = planner(large_problem(2000, 5000), seeds=seeds), list[int](), Planner.needed

    def counts(self: Planner, runs: int, *given: Any) -> int:
        counted.append(runs)
        return needed(self, runs, *given)

    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(Planner, "needed", counts)
    next(replace(planned, batches=2).candidates(PLENTY))
    assert counted == [together]


def test_free_memory_is_known_here() -> None:
    assert 1 << 20 < free_memory(torch.device("cpu"))


def group(folder: Path, most: str, taken: int, files: int, old: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if old else ("memory.max", "memory.current")
    for name, text in zip(names, (most, str(taken)), strict=True):
        (folder / name).write_text(f"{text}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")


@pytest.mark.parametrize(("kind", "top"), [("", "sys/fs/cgroup"), ("memory", "sys/fs/cgroup/memory")])
def test_the_narrowest_of_nested_groups_bounds_memory(kind: str, top: str, tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"7:cpu,cpuacct:/x\n0:{kind}:/user/job\n")
    old = bool(kind)
    group(tmp_path / top / "user" / "job", "max" if not old else str(1 << 63), 100, 0, old)
    assert left_to_groups(tmp_path) >= 1 << 62
    group(tmp_path / top / "user", "1000", 700, 50, old)
    assert left_to_groups(tmp_path) == 350
    group(tmp_path / top / "user" / "job", "500", 400, 10, old)
    assert left_to_groups(tmp_path) == 110
    (tmp_path / "proc/self/cgroup").write_text("0::/elsewhere\n")
    assert left_to_groups(tmp_path) >= 1 << 62


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_limits_of_the_process_bound_memory(limit: int) -> None:
    before = resource.getrlimit(limit)
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(limit, (taken + (1 << 30), before[1]))
    try:
        assert free_memory(torch.device("cpu")) <= taken + (1 << 30)
    finally:
        resource.setrlimit(limit, before)


# Planned searches: on 1200 nodes a search needs some 970 kB, two parts 610 kB, four parts 360 kB.


def tight(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(runner, "free_memory", lambda device: free)


def test_a_search_that_does_not_fit_is_cut_says_so_and_continues_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data, run = graph(nodes=1200), tmp_path / "run"
    tight(monkeypatch, 800_000)
    first = search(data, out=run, levels=1)
    assert first.config.training.partitions == 2
    assert json.loads((run / "environment.json").read_text())["partitions"] == 2
    assert [record.message for record in caplog.records] == [events(run, "plan")[0]["text"].join(["memory: ", ""])]
    assert "2 partitions: about 1 MiB of 1 MiB free" in caplog.text
    assert "the process takes about 410 MiB in all" in caplog.text
    tight(monkeypatch, PLENTY)
    again = search(data, out=run, levels=2)
    assert again.config.training.partitions == 2
    whole = search(data, levels=2, partitions=2)
    assert again.tickets[0].trained.prunable.equal(whole.tickets[0].trained.prunable)
    with pytest.raises(RunError, match=r"partitions: 2 → 1"):
        search(data, out=run, levels=2, partitions=1)


def test_a_search_that_fits_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert search(out=tmp_path / "run", levels=0).config.training.partitions == 1
    assert not caplog.records
    assert len(events(tmp_path / "run", "plan")) == 1


def test_the_memory_of_parts_is_said_before_anything_is_trained(caplog: pytest.LogCaptureFixture) -> None:
    search(levels=0, partitions=2, partition_by="neighbours")
    assert [record.message[:39] for record in caplog.records] == ["memory: training with 2 partitions: abo"]


def failing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next `times` levels run out of memory."""
    left, select = [times], Search.select

    def fail(self: Search, state: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return select(self, state)

    monkeypatch.setattr(Search, "select", fail)


def test_out_of_memory_the_search_falls_back_once_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data, run = graph(nodes=1200), tmp_path / "run"
    failing(monkeypatch, 1)
    with caplog.at_level(logging.WARNING):
        result = search(data, out=run, levels=1, hidden=64)
    assert result.config.training.partitions == 4
    assert result.results["levels"][0]["level"] == 1
    assert "memory: out of memory; now 4 partitions" in caplog.text
    assert search(data, out=run, levels=2, hidden=64).config.training.partitions == 4


def test_out_of_memory_twice_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 2)
    with pytest.raises(TrainingError, match=r"out of memory \(4 partitions: .*more --partitions"):
        search(graph(nodes=1200), hidden=64)


def test_out_of_memory_with_nothing_left_to_save_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 1)
    with pytest.raises(TrainingError, match=r"out of memory \(full batch"):
        search(graph(nodes=1200), partitions=1)
