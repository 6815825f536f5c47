"""A search from a dataset's name or a graph to results, tickets and a report; killed at any moment, it continues."""

from __future__ import annotations

import logging
import platform
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import proxy

import torch

from aceglt import datasets
from aceglt.backbones import Backbone, Params
from aceglt.backends.cpu.allocator import return_memory
from aceglt.config import Config, as_call, resolve
from aceglt.config.own import take
from aceglt.errors import ConfigError, RunError, TicketError, TrainingError
from aceglt.files import write_checked_json
from aceglt.methods import Method
from aceglt.methods.base import batches
from aceglt.methods.build import build_method
from aceglt.problems import build_problem
from aceglt.problems.own import customise
from aceglt.report import ReportUnavailable, load_runs, write_report
from aceglt.report.tensorboard import Scalars, check_tensorboard
from aceglt.runs import checkpoint
from aceglt.runs.directory import RunDir
from aceglt.searches.levels import Search, SearchObserver, enough, prune_iteratively
from aceglt.searches.results import summarise
from aceglt.searches.state import State
from aceglt.searches.statistics import best_level
from aceglt.tickets.ticket import Ticket
from aceglt.training import processes
from aceglt.training.memory import PLANNED, Plan, Planner, free_memory
from aceglt.training.setup import build_backbone, build_parts, deterministic_torch, pick_device
from aceglt.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aceglt.config.keywords import Settings

TICKETS = ("best", "all", "none")


@dataclass(frozen=True)
class SearchResult:
    """What a search found."""

    config: Config
    results: Mapping[str, Any]
    """The content of results.json."""
    tickets: Sequence[Ticket]
    """One per seed of the kept levels."""
    path: Path | None
    """The run directory, if there is one."""
    notes: Sequence[str] = ()
    """What the user should know, such as why there is no report."""

    @property
    def best(self) -> Ticket | None:
        """The `strict` winner: of the sparsest level whose mean validation matches dense, the seed that validates best.

        None if no level wins or no tickets were kept.
        """
        level = best_level(self.results)
        candidates = [t for t in self.tickets if level is not None and t.level == level["level"]]
        return max(candidates, key=lambda t: t.metrics["val"] or 0.0, default=None)


def search(
    data: Any = None,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    data_root: str | Path | None = None,
    tickets: str = "best",
    preset: str = "default",
    runs_at_once: int | None = None,
    tensorboard: bool = False,
    observer: SearchObserver | None = None,
    command: str | None = None,
    **settings: Unpack[Settings],
) -> SearchResult:
    """Search for graph lottery tickets.

    Args:
        data: a PyG `Data` with x, edge_index, y and the three masks (for link prediction x and edge_index are
            enough), and edge_weight and edge_attr where edges have them (see docs/files.md); without it, `dataset` is
            loaded.
        out: run directory. With it, everything is written there and an interrupted or finished search continues;
            without it, nothing is written.
        device: "cpu", "cuda", "cuda:1" …, or "auto".
        data_root: where datasets are looked for first.
        tickets: which tickets are kept: those of the "best" level, "all" or "none".
        preset: "default", "paper", "ugs" or "quick"; `settings` override it.
        runs_at_once: how many runs share a GPU's kernels and memory (default: as many as fit); recorded, and kept when
            a search continues. On a CPU each run is trained by itself.
        tensorboard: write scalars for TensorBoard into the run directory.
        observer: told about progress.
        command: how to repeat the search, for the report; without it, this call.
        settings: fields of `Config`, such as dataset, backbone, method, task, axis, levels, seeds, epochs, signal,
            directed, split. What is your own is given as an object or as "module:attribute" (docs/own-model.md):
            `backbone` a torch.nn.Module (class, factory, instance), `method` a class or instance, `loss` and `metric`
            functions.

    Returns:
        The results; `.best` is the winning ticket.

    Raises:
        AcegltError: something given is wrong; the message says what.

    Example:
        >>> result = aceglt.search(data, method="ace", levels=5, seeds=3)  # doctest: +SKIP
        >>> sparse = result.best.apply(data)  # doctest: +SKIP
    """
    if tickets not in TICKETS:
        raise ConfigError(f"unknown choice of tickets '{tickets}'; known are {', '.join(TICKETS)}")
    if runs_at_once is not None and runs_at_once < 1:
        raise ConfigError(f"runs_at_once must be 1 or more, found {runs_at_once}")
    if tensorboard:
        check_tensorboard(out)
    names, own = take(settings)
    command = command or as_call({"preset": preset, **names}, *(["data"] if data is not None else []))
    if data is not None:
        names["dataset"] = names.get("dataset") or "data"
    config = resolve(preset, **names)
    method = build_method(config, own)
    chosen = frozenset(n for n in PLANNED if names.get(n) is not None)
    chosen |= {"runs_at_once"} if runs_at_once is not None else set()
    with ExitStack() as stack:
        stack.enter_context(deterministic_torch(config.training.deterministic))
        stack.enter_context(processes.joined())
        source = data if data is not None else datasets.read(config.dataset, data_root)
        name = config.dataset if data is not None else None
        problem = build_problem(config, source, name).to(pick_device(device))
        problem = customise(problem, own.loss, own.metric)
        backbone = build_backbone(config, problem, own)
        _check_processes(config, backbone)
        if own.prunable is not None:
            config = config.replace(prunable=tuple(name for name, _ in backbone.prunable.shapes))
        leads = processes.leads()
        run = stack.enter_context(RunDir(out)) if out is not None and leads else None
        planner = Planner(problem, backbone, config, runs_at_once, chosen, batches(method))
        plan = processes.agreed(_plan(planner, run))
        stack.callback(return_memory)
        policy, heard = (tickets, observer) if leads else ("none", None)
        runner = _Runner(planner, plan, method, run, policy, heard, command)
        if run is not None:
            run.claim(runner.config, problem.fingerprint)
            runner.scalars = stack.enter_context(Scalars(run.tensorboard)) if tensorboard else None
        return runner.go()


def _plan(planner: Planner, run: RunDir | None) -> Plan:
    """How the search uses memory: as it did before, or as now seems best."""
    free = free_memory(planner.problem.device)
    if run is None or not run.config.exists():
        return planner.plan(free)
    return planner.kept(run.read_config(), run.read_environment().get("runs_at_once"), free)


def _check_processes(config: Config, backbone: Backbone) -> None:
    count = processes.count()
    for name, found in (("partitions", config.training.partitions), ("parts_per_step", config.training.parts_per_step)):
        if found < count:
            raise ConfigError(
                f"{count} processes share the parts of a step, so partitions and parts_per_step must be {count} or "
                f"more, found {name} {found}"
            )
    if count > 1 and backbone.buffers:
        raise ConfigError(
            f"{backbone.name} keeps running statistics ({', '.join(sorted(backbone.buffers))}), which several "
            "processes would not share; train it in one"
        )


@dataclass
class _Runner:
    """Takes the state through its stages and writes down each; as the search's observer, it logs phases and readings of
    the test set."""

    planner: Planner
    plan: Plan
    method: Method
    run: RunDir | None
    policy: str
    observer: SearchObserver | None
    command: str
    scalars: Scalars | None = None
    fell_back: bool = False
    """Whether memory ran out once."""
    kept: dict[int, list[Ticket]] = field(default_factory=dict)
    """By level; used when there is no run directory."""

    def __post_init__(self) -> None:
        self.problem = self.planner.problem
        self._follow(self.plan)

    def _follow(self, plan: Plan) -> None:
        """Search as a plan says."""
        self.plan = plan
        self.config = self.planner.config.replace(checkpoint_blocks=plan.checkpoint_blocks, partitions=plan.partitions)
        backbone, parts = self.planner.variant(plan.checkpoint_blocks), build_parts(self.config)
        at_once = plan.runs_at_once if self.problem.device.type == "cuda" else None
        # a proxy: a cycle would keep the search, and its graph, until garbage is collected
        self.search = Search(self.problem, backbone, self.method, self.config, proxy(self), at_once, parts)

    def on_phase(self, level: int, phase: str) -> None:
        self._log("phase", level=level, phase=phase)
        if self.observer is not None:
            self.observer.on_phase(level, phase)

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        if self.observer is not None:
            self.observer.on_epoch(epoch, epochs, runs, best)

    def on_test(self, level: int) -> None:
        self._log("test read", level=level)
        if self.observer is not None:
            self.observer.on_test(level)

    def go(self) -> SearchResult:
        state = start = self._begin()
        for state, params in self._stages(start):
            if params is not None:
                self._keep_tickets(state, params)
            if self.run is not None:  # the state first, then what is derived from it
                checkpoint.save(self.run.checkpoint, state)
                self.run.final.unlink(missing_ok=True)
                self._publish(state, finished=False)
            if params is not None:
                self._log("level", level=state.level, val=state.records[-1].outcome.val)
        return self._finish(state)

    def _stages(self, state: State) -> Iterator[tuple[State, Params | None]]:
        """The search from a state on; where memory runs out, once more with a plan that needs less, and only once."""
        try:
            for reached in prune_iteratively(self.search, state, partial(enough, self.search)):
                state = reached[0]
                yield reached
            return
        except torch.OutOfMemoryError as problem:
            smaller = self.planner.smaller(self.plan)
            if self.fell_back or smaller is None or processes.count() > 1:
                raise TrainingError(
                    f"out of memory ({self.plan}); try fewer --runs-at-once, more --partitions or fewer --hidden units"
                ) from problem
        self.fell_back = True
        torch.cuda.empty_cache()
        self._follow(smaller)
        if self.run is not None:
            self.run.change(self.config, self.problem.fingerprint)
        self._record_plan("out of memory; now")
        yield from self._stages(state)

    def _record_plan(self, said: str) -> None:
        """Say how memory is used, unless it is a full batch as asked for that fits, and write it down."""
        plan = self.plan
        if self.run is not None:
            kept = {name: value for name, value in self.run.read_environment().items() if name == "peak_memory"}
            facts = {"runs_at_once": self.search.runs_at_once, "partitions": plan.partitions}
            facts |= {"needed_memory": plan.needed, "free_memory": plan.free}
            write_checked_json(self.run.environment, {**_environment(self.problem.device), **facts, **kept})
            self._log("plan", text=f"{said} {plan}", **facts)
        if processes.leads() and not (plan.fits and self.planner.asked_for(plan) and plan.partitions == 1):
            logging.getLogger("aceglt").warning("memory: %s %s", said, plan)

    def _begin(self) -> State:
        """The state to go on from."""
        state, run = State(), self.run
        if run is not None and (saved := [path for path in (run.checkpoint, run.final) if path.exists()]):
            state = checkpoint.load(saved[0], self.search.total, len(self.config.seeds))
        state = processes.agreed(state).to(self.problem.device)
        self._record_plan("training with")
        self._log("resume" if state.dense else "start", level=state.level, command=self.command)
        if run is not None and state.dense is not None:
            self._publish(state, finished=False)
        return state

    def _publish(self, state: State, finished: bool) -> dict[str, Any]:
        results = summarise(self.search, state, finished)
        if self.run is not None:
            write_checked_json(self.run.results, results)
        if self.scalars is not None:
            self.scalars.update(results)
        self._drop_tickets(results)
        return results

    def _keep_tickets(self, state: State, params: Params) -> None:
        if self.policy == "none":
            return
        tickets = [self._ticket(state, params, i) for i in range(len(self.config.seeds))]
        if self.run is None:
            self.kept[state.level] = tickets
            self._drop_tickets(summarise(self.search, state, finished=False))
            return
        for ticket in tickets:
            ticket.save(self.run.ticket(ticket.level, ticket.seed))

    def _ticket(self, state: State, params: Params, i: int) -> Ticket:
        assert state.masks is not None
        assert state.dense is not None
        one, record, problem = slice(i, i + 1), state.records[-1], self.problem
        masks, start = state.masks[one], self.search.start[one]
        readings = {"": record.outcome, "dense_": state.dense}
        edge_features = self.search.backbone.edge_features
        return Ticket(
            config=self.config,
            seed=self.config.seeds[i],
            level=state.level,
            masks=masks.to("cpu"),
            initial=Params(start.prunable * masks.weights, start.other).to("cpu"),
            trained=params[one].to("cpu"),
            metrics={
                f"{of}{name}": values[i] if values else None
                for of, found in readings.items()
                for name, values in (("val", found.val), ("test", found.test))
            },
            sizes={
                "in_features": problem.x.shape[1],
                "out_features": problem.out_features,
                "macs": self.search.macs(record.alive),
                "dense_macs": self.search.macs(),
                **({"edge_features": edge_features} if edge_features else {}),
            },
            graph=replace(problem.graph.to("cpu"), edge_attr=None),
            fingerprint=problem.graph.fingerprint,
            several=problem.several,
        )

    def _drop_tickets(self, results: Mapping[str, Any]) -> None:
        """With policy `best`, keep the tickets of one level: the winner, or the best on validation so far."""
        if self.policy != "best":
            return
        keep = _level_to_keep(results)
        if self.run is None:
            self.kept = {level: tickets for level, tickets in self.kept.items() if level == keep}
            return
        wanted = {self.run.ticket(keep, seed).name for seed in self.config.seeds}
        for path in self.run.tickets.glob("level_*.safetensors"):
            if path.name not in wanted:
                path.unlink()

    def _finish(self, state: State) -> SearchResult:
        results, run = self._publish(state, finished=True), self.run
        if run is None:
            return SearchResult(self.config, results, [t for ts in self.kept.values() for t in ts], None)
        notes = []
        try:
            write_report(load_runs([run.path], run.path), run.report)
        except ReportUnavailable as problem:
            notes = [str(problem)]
        if run.checkpoint.exists():
            run.checkpoint.replace(run.final)
        recorded = run.read_environment()
        peak = max(recorded.get("peak_memory") or 0, _peak_memory(self.problem.device))
        write_checked_json(run.environment, {**recorded, "peak_memory": peak})
        self._log("finish", level=state.level)
        try:
            tickets = [Ticket.load(path) for path in sorted(run.tickets.glob("level_*.safetensors"))]
        except TicketError as problem:
            raise RunError(f"{problem}; without {run.final} the same command makes all tickets again") from None
        return SearchResult(self.config, results, tickets, run.path, notes)

    def _log(self, event: str, **facts: Any) -> None:
        if self.run is not None:
            self.run.log(event, **facts)


def _level_to_keep(results: Mapping[str, Any]) -> int:
    best = max(results["levels"], key=lambda level: sum(level["val"]), default={"level": 0})
    return int((best_level(results) or best)["level"])


def _environment(device: torch.device) -> dict[str, Any]:
    return {
        "aceglt": __version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _peak_memory(device: torch.device) -> int:
    """Bytes: the most that tensors took on a GPU, or the process in main memory, up to now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in kilobytes
