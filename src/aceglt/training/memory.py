"""How a search fits into memory: estimated before anything is trained, chosen, said, and kept when it continues."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from aceglt.backbones.base import Backbone
from aceglt.backends import choose
from aceglt.config import Config
from aceglt.numerics.csr import stored_bytes
from aceglt.numerics.ops import ARC_ELEMENTS_GPU
from aceglt.problems.base import Problem

PLANNED = ("checkpoint_blocks", "partitions")
"""Fields of `Config` that a plan decides unless they are given."""
BUDGET = 0.85
"""Share of the free memory that a plan may take: what kernels use inside is not in the estimate."""
_FEWEST_NODES = 64  # of a part that is worth cutting

# Measured on score training, as backbones' footprints are: numbers that one run has at its peak.
_PER_OUTPUT = 8.0  # per node and output: outputs, the loss and its gradient
_PER_WEIGHT = 11.0  # weights, scores, their gradients and Adam's state
_PER_SCORE = 8.0  # the same of an edge
_PER_HELD_EDGE = 28.0  # the structure of an evaluated part, which is kept
_PER_DRAWN_EDGE = 4.0  # the lists that neighbours are drawn from
_PER_SORTED_EDGE = 56.0  # the structure of all edges, for an evaluation of the whole graph, while it is made
_EVALUATED_UNITS = 2.0  # layers of units that such an evaluation holds
_PER_HELD_WEIGHT = 4.0  # and per edge, of a run that waits for its turn: weights and scores, at first and trained
_PER_CHOICE = 10.5  # per weight and edge, of all runs: scores are ranked and masks made
_PROGRAM = 2 * 2**30 // 5  # bytes of what is loaded before anything is trained
_ARC_TENSORS = 7  # of a few channels of all arcs, where edges have features

# What a GPU takes beyond that, measured on an H200: sorts of arcs are not in place and a recorded epoch has memory of
# its own; libraries have workspaces.
_GPU_FACTOR = 1.25
_GPU_LIBRARIES = 200 << 20


@dataclass(frozen=True)
class Plan:
    """What of a search shares the memory."""

    runs_at_once: int | None
    """How many runs share a GPU; None is all."""
    checkpoint_blocks: bool
    partitions: int
    needed: int
    """Bytes, estimated."""
    free: int
    """Bytes that were free when the plan was made."""

    @property
    def fits(self) -> bool:
        return self.needed <= BUDGET * self.free

    def __str__(self) -> str:
        means = [
            f"{self.runs_at_once} run(s) at once" if self.runs_at_once is not None else "",
            "activations computed again in the gradient" if self.checkpoint_blocks else "",
            f"{self.partitions} partitions" if self.partitions > 1 else "full batch",
        ]
        size = f"about {size_in_words(self.needed)} of {size_in_words(self.free)} free"
        return f"{', '.join(filter(None, means))}: {size}" + ("" if self.fits else "; this may be too little")


def size_in_words(count: int) -> str:
    """Bytes, as people say it."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**29 else f"{count / 2**20:.0f} MiB"


@dataclass(frozen=True)
class Planner:
    """Everything that a plan depends on."""

    problem: Problem
    backbone: Backbone
    config: Config
    runs_at_once: int | None
    chosen: frozenset[str]
    """Settings of a plan that the user has chosen; they are kept."""
    batches: int = 1
    """How many parts of every run the method trains together."""

    def plan(self, free: int) -> Plan:
        """The first of the candidates that fits, or the smallest."""
        plans = list(self.candidates(free))
        return next((plan for plan in plans if plan.fits), min(plans, key=lambda plan: plan.needed))

    def asked_for(self, plan: Plan) -> bool:
        """Whether a plan is what the settings say, chosen or not."""
        asked = self.runs_at_once, _again(self.config), self.config.training.partitions
        return (plan.runs_at_once, plan.checkpoint_blocks, plan.partitions) == asked

    def kept(self, config: Config, runs_at_once: int | None, free: int) -> Plan:
        """The plan that an earlier part of the search went by; what the user has chosen now is not its."""
        again = _again(self.config if "checkpoint_blocks" in self.chosen else config)
        partitions = (self.config if "partitions" in self.chosen else config).training.partitions
        needed = self.needed(min(runs_at_once or self._most_runs, self._most_runs), again, partitions)
        return Plan(runs_at_once or self.runs_at_once, again, partitions, self._with_all_runs(needed), free)

    def smaller(self, plan: Plan) -> Plan | None:
        """The first candidate that needs at most half as much, for when a plan turns out too large."""
        return next((p for p in self.candidates(plan.free) if 2 * p.needed <= plan.needed), None)

    def candidates(self, free: int) -> Iterator[Plan]:
        """Ever smaller plans: fewer runs at once, then checkpointing, then parts."""
        runs, again, partitions = self._most_runs, _again(self.config), self.config.training.partitions
        yield self._candidate(runs, again, partitions, free)
        while runs > 1 and "runs_at_once" not in self.chosen:
            runs = (runs + 1) // 2
            yield self._candidate(runs, again, partitions, free)
        if not again and self.backbone.lighter() is not None and "checkpoint_blocks" not in self.chosen:
            again = True
            yield self._candidate(runs, again, partitions, free)
        while 2 * partitions * _FEWEST_NODES <= self.problem.graph.num_nodes and "partitions" not in self.chosen:
            partitions *= 2
            yield self._candidate(runs, again, partitions, free)

    def _candidate(self, runs: int, again: bool, partitions: int, free: int) -> Plan:
        limit = None if runs == self._all_runs and self.runs_at_once is None else runs
        if self.problem.device.type == "cpu":
            limit = None  # each is trained by itself
            together, seeds = choose(self.problem.device).side_by_side, len(self.config.seeds)
            counts = [seeds * batches for batches in range(1, self.batches + 2)]  # of trainings, and of tickets to keep
            most = max(together(self.backbone, self.problem.graph, count) for count in counts)
            runs = max(1, most) if partitions == 1 else 1
        needed = self.needed(runs, again, partitions)
        return Plan(limit, again, partitions, self._with_all_runs(needed), free)

    def _with_all_runs(self, training: int) -> int:
        """Bytes on a CPU, where a few runs are trained at a time while the others wait, and all are pruned at once."""
        if self.problem.device.type != "cpu":
            return training
        size = torch.finfo(self.problem.x.dtype).bits // 8
        elements = size * (self.backbone.prunable.size + self.problem.graph.num_edges)
        choice = _PER_CHOICE * elements * len(self.config.seeds)
        return int(_PER_HELD_WEIGHT * elements * self._all_runs + max(training, choice))

    @property
    def _all_runs(self) -> int:
        return len(self.config.seeds) * self.batches

    @property
    def _most_runs(self) -> int:
        return 1 if self.problem.device.type == "cpu" else min(self.runs_at_once or self._all_runs, self._all_runs)

    def variant(self, again: bool) -> Backbone:
        """The backbone that a plan trains: as it is, or computing activations again."""
        return (self.backbone.lighter() if again else None) or self.backbone

    def needed(self, runs: int, again: bool, partitions: int) -> int:
        """Bytes that training takes at its peak, data included."""
        graph = (self.problem.view("test") or self.problem).graph
        backbone, size = self.variant(again), torch.finfo(self.problem.x.dtype).bits // 8
        nodes, part_edges = self._part(partitions)
        if partitions > 1 and self.config.training.partition_by == "neighbours":
            runs = 1  # each is trained by itself
        footprint, widths = backbone.footprint, backbone.aggregation_widths
        per_node = footprint.per_node * sum(widths) + footprint.at_work * max(widths, default=0)
        per_node += _PER_OUTPUT * self.problem.out_features + self._summed_features
        step = footprint.per_edge * part_edges + per_node * nodes
        numbers = (
            _PER_WEIGHT * (backbone.prunable.size + backbone.other.size)
            + _PER_SCORE * graph.num_edges
            + 2 * self.problem.out_features * graph.num_nodes
        )
        data = sum(stored_bytes(t) for t in (self.problem.x, graph.edges, graph.edge_attr) if t is not None)
        arcs = runs * part_edges if partitions == 1 else max(runs * part_edges, graph.num_edges)
        total = size * (runs * numbers + self._peak(runs, step, part_edges, partitions)) + data
        total += self._arc_tensors(size, arcs * graph.arcs_per_edge)
        if self.problem.device.type == "cuda":
            total *= _GPU_FACTOR
        return int(total)

    @property
    def _summed_features(self) -> int:
        """Numbers of each node that a GPU keeps of dense features summed along arcs (see `backends.layers.Ordered`)."""
        chain = self.backbone.chain
        if self.problem.device.type != "cuda" or not chain or chain[0].attends or self.problem.features.sparse:
            return 0
        return chain[0].inputs if chain[0].messages and chain[0].inputs <= 2 * chain[0].units else 0

    def _part(self, partitions: int) -> tuple[float, float]:
        """About how many nodes and edges a step trains on."""
        training, graph = self.config.training, (self.problem.view("test") or self.problem).graph
        if partitions == 1 or training.partition_by != "neighbours":
            thinning = partitions if training.partition_by == "random" else 1  # of this many edges one is within a part
            return graph.num_nodes / partitions, graph.num_edges / thinning / partitions
        degree = graph.edges.flatten().bincount(minlength=graph.num_nodes).double()
        drawn = degree.clamp(max=training.neighbours)
        # Neighbours have more neighbours than nodes do.
        per_seed, per_node = float(drawn.mean()), float((degree * drawn).sum() / degree.sum().clamp(min=1))
        taught = self.config.scoring.signal == "teacher" and self.config.stopping.levels > 0
        labelled = None if taught else self.problem.reads("train")
        reached = (graph.num_nodes if labelled is None else len(labelled)) / partitions
        nodes, edges = reached, 0.0
        for layer in range(len(self.backbone.aggregation_widths)):
            reached = min(reached * (per_node if layer else per_seed), graph.num_nodes)
            nodes, edges = nodes + reached, edges + reached
        return min(nodes, graph.num_nodes), min(edges, graph.num_edges)

    def _peak(self, runs: int, step: float, part_edges: float, partitions: int) -> float:
        """Numbers of a step of some runs and of what is held beside it, to evaluate parts and to draw neighbours from;
        or of one run's evaluation on the whole graph."""
        if partitions == 1:
            return runs * step
        graph = (self.problem.view("test") or self.problem).graph
        evaluation = _EVALUATED_UNITS * max(self.backbone.aggregation_widths, default=0) * graph.num_nodes
        held, sorting = _PER_HELD_EDGE * graph.num_edges, _PER_SORTED_EDGE * graph.num_edges
        if self.config.training.partition_by != "neighbours":
            training = runs * (step + _PER_HELD_EDGE * part_edges * partitions)
            return max(training, sorting, held + evaluation)
        held += _PER_DRAWN_EDGE * graph.num_edges
        return max(sorting, held + max(evaluation, step))

    def whole_program(self, plan: Plan | None = None) -> int:
        """Bytes of main memory that a process takes which searches on a CPU as a plan, or the first candidate, says."""
        return _PROGRAM + (plan or next(self.candidates(0))).needed

    def _arc_tensors(self, size: int, arcs: float) -> float:
        """Bytes of messages with features of edges, which are made a few channels at a time."""
        if not self.backbone.edge_features:
            return 0.0
        channels = self.backbone.aggregation_widths[0]
        most = ARC_ELEMENTS_GPU if self.problem.device.type == "cuda" else 8 * arcs
        return size * (_ARC_TENSORS * min(channels * arcs, most) + self.backbone.edge_features * arcs)


def _again(config: Config) -> bool:
    return bool(config.backbone_options.checkpoint_blocks)


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device for what a plan counts, as far as the system says."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return max(0, int(torch.cuda.mem_get_info(device)[0]) + cached - _GPU_LIBRARIES)
    return max(0, min(_available(), left_to_groups(Path("/")), _left_to_process()))


_UNBOUNDED = 1 << 62


def _available() -> int:
    """What Linux says is available; elsewhere, nothing is known and nothing is bounded."""
    return 1024 * _facts(Path("/proc/meminfo")).get("MemAvailable:", _UNBOUNDED // 1024)


def left_to_groups(root: Path) -> int:
    """What the control groups that the process is in, by the files below `root`, may still take: of either version of
    Linux's, and every one up to the outermost. What they hold of files can be given back."""
    try:
        lines = [
            line.split(":", 2)
            for line in (root / "proc/self/cgroup").read_text("utf-8", "surrogateescape").splitlines()
        ]
    except OSError:
        return _UNBOUNDED
    left = [_UNBOUNDED]
    for _, kinds, group in lines:
        if kinds in ("", "memory"):
            top = root / "sys/fs/cgroup" / kinds
            old = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            names = old if kinds else ("memory.max", "memory.current")
            folder = top / group.lstrip("/")
            left += [_left_to_group(place, *names) for place in (folder, *folder.parents, top) if place.is_dir()]
    return min(left)


def _left_to_group(folder: Path, limit: str, usage: str) -> int:
    try:
        most, taken = (int((folder / name).read_text()) for name in (limit, usage))
    except (OSError, ValueError):  # no such limit: no file, or "max"
        return _UNBOUNDED
    return most - taken + _facts(folder / "memory.stat").get("inactive_file", 0)


def _left_to_process() -> int:
    """What `ulimit -v` and `-d` leave of addresses and of data."""
    limits = {"VmSize:": resource.RLIMIT_AS, "VmData:": resource.RLIMIT_DATA}
    taken, left = _facts(Path("/proc/self/status")), [_UNBOUNDED]
    for name, limit in limits.items():
        most = resource.getrlimit(limit)[0]
        left += [most - 1024 * taken.get(name, 0)] if most != resource.RLIM_INFINITY else []
    return min(left)


def _facts(path: Path) -> dict[str, int]:
    """Lines of a name and a number, as the kernel writes them; none where there is no such file."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdecimal()}
