"""Time per epoch and peak memory for each backbone, dataset and number of runs, beside the floor and the reference."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from aceglt import datasets
from aceglt.backbones import build
from aceglt.backbones.base import Backbone
from aceglt.backends import choose
from aceglt.backends.base import ScoreTraining
from aceglt.config import Training
from aceglt.numerics import rng
from aceglt.numerics.masks import Counts, Masks
from aceglt.problems import NodeProblem
from aceglt.problems.base import Problem, Soft
from aceglt.training.fit import fit
from benchmarks import floor
from benchmarks.machine import fastest, peak_mib
from benchmarks.reference import Reference

HIDDEN = 512
TRAINING = Training(lr=0.01, weight_decay=5e-4)
SCORING = ScoreTraining(1e-4, 1e-4, decay=True, clamp=False, epoch="best")
SECONDS = 1.0  # that a measurement may take, before repetitions
_SLOW = 4.0  # seconds from which on one measurement has to do


def problem_of(name: str, data_root: str | None, device: str) -> Problem:
    return Problem.from_data(datasets.load(name, data_root)).to(device)


def measure(name: str, backbone_name: str, runs: int, rates: dict[str, float], **where: Any) -> dict[str, Any]:
    """Milliseconds per epoch of all runs together: score training with a teacher, as a search does it by default, on
    labels, and retraining; the first two beside their floors."""
    problem = problem_of(name, **where)
    seeds, device = range(runs), where["device"]
    backbone = build(backbone_name, problem.x.shape[1], problem.out_features, HIDDEN)
    start, key = backbone.init(seeds, device), rng.keys(seeds, "bench", device=device)
    masks = Masks.full(runs, Counts(backbone.prunable.size, problem.graph.num_edges), device)
    uniform = torch.full((runs, problem.graph.num_nodes, problem.out_features), 1 / problem.out_features, device=device)
    kinds: dict[str, dict[str, Any]] = {
        "teacher_ms": {"scoring": SCORING, "soft": Soft(uniform, 10.0)},
        "labels_ms": {"scoring": SCORING},
        "train_ms": {},
    }
    row: dict[str, Any] = {"dataset": name, "backbone": backbone_name, "runs": runs}
    for kind, options in kinds.items():

        def train(epochs: int, options: dict[str, Any] = options) -> None:
            fit(problem, backbone, start, masks, epochs, TRAINING, key, **options)

        row[kind] = round(per_epoch(train, device) * 1e3, 2)
        if "scoring" in options and not any(stage.attends for stage in backbone.chain):
            least = floor.work(problem, backbone, "soft" in options).floor_ms(rates, runs)
            prefix = "teacher_" if "soft" in options else ""
            row |= {f"{prefix}floor_ms": round(least, 2), f"{prefix}over_floor": round(row[kind] / least, 1)}
    if device == "cpu" and "teacher_floor_ms" in row:
        least = floor.work(problem, backbone, True).floor_ms(rates, runs, gathers(problem, backbone))
        row |= {"gathers_floor_ms": round(least, 2), "teacher_over_gathers": round(row["teacher_ms"] / least, 1)}
    row["peak_mib"] = peak_mib(device)
    return row


def gathers(problem: Problem, backbone: Backbone) -> float:
    """Seconds that the sparse products of a first layer take alone on a CPU, in an epoch with the teacher's signal:
    with sparse features for units and for the weight's gradient; along the arcs forward, back, and for their scores."""
    backend, graph = choose(problem.device), problem.graph
    features, units = backend.features(problem.features), backbone.chain[0].units
    batch = graph.batch(graph.edges.new_ones(1, graph.num_edges).bool(), backbone.self_loops, backend.kernels)
    arcs, of_nodes = batch.csr(torch.ones(batch.num_arcs)), torch.rand(graph.num_nodes, units)
    along = partial(backend.kernels.product, arcs, of_nodes)
    passes = [along, along, partial(backend.kernels.inner, batch, of_nodes, of_nodes)]
    if features.csr is not None:
        weight = torch.rand(1, features.shape[1], units)
        passes += [partial(features.product, weight), partial(features.gradient, of_nodes.unsqueeze(0))]
    return sum(fastest(each, "cpu", 10) for each in passes)


def measure_reference(name: str, **where: Any) -> dict[str, Any]:
    """The same of the dense reference, which has one run and no retraining of its own."""
    problem, device = problem_of(name, **where), where["device"]
    assert isinstance(problem, NodeProblem)
    reference = Reference(problem, HIDDEN)
    reference.epoch()
    seconds = fastest(reference.epoch, device, 3)
    return {"dataset": name, "reference_ms": round(seconds * 1e3, 1), "peak_mib": peak_mib(device)}


def per_epoch(train: Any, device: str) -> float:
    """Seconds per epoch: the difference of a longer and a shorter training, so that what both begin with cancels."""
    few, more = (2, 4) if device == "cpu" else (10, 60)
    short, long = fastest(lambda: train(few), device, 1), fastest(lambda: train(more), device, 1)
    if long > _SLOW:
        return (long - short) / (more - few)
    many = few + max(2, min(100, int(SECONDS * more / long)))
    short = fastest(lambda: train(few), device, 3)
    return max(1e-5, (fastest(lambda: train(many), device, 3) - short) / (many - few))
