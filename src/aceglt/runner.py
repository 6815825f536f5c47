"""A search from a dataset's name or a graph to results, tickets and a report; killed at any moment, it continues."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import proxy

import torch
from rich.console import Console

from aceglt import datasets
from aceglt.backbones import Backbone, Params
from aceglt.backends.cpu.allocator import return_memory
from aceglt.config import Config, as_call, check_known, resolve
from aceglt.config.checks import count
from aceglt.config.own import take
from aceglt.errors import AcegltError, ConfigError, RunError, TicketError, TrainingError
from aceglt.files import write_checked_json
from aceglt.methods import Method
from aceglt.methods.base import batches
from aceglt.methods.build import build_method
from aceglt.problems import build_problem
from aceglt.problems.checks import say_one_way, say_unread
from aceglt.problems.own import customise
from aceglt.report import ReportUnavailable, load_runs, write_report
from aceglt.report.result import SearchResult
from aceglt.report.tensorboard import Scalars, check_tensorboard
from aceglt.runs import checkpoint
from aceglt.runs.background import Background
from aceglt.runs.directory import RunDir, results_of
from aceglt.runs.environment import environment, peak_memory
from aceglt.searches.levels import Search, prune_iteratively
from aceglt.searches.observer import Observer, tell
from aceglt.searches.progress import SearchProgress, visible
from aceglt.searches.results import summarise
from aceglt.searches.state import State, joined
from aceglt.searches.statistics import best_level
from aceglt.searches.stopping import enough, reason_to_stop
from aceglt.searches.wording import level_in_words
from aceglt.tickets.bench import benchmark
from aceglt.tickets.found import found_ticket
from aceglt.tickets.ticket import Ticket
from aceglt.training import processes
from aceglt.training.memory import PLANNED, Plan, Planner, free_memory, size_in_words
from aceglt.training.setup import build_backbone, build_parts, deterministic_torch, pick_device, usual_torch

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aceglt.config.keywords import Settings

TICKETS = ("best", "all", "none")
MEASURED = (10**7, 2 * 10**10)
"""MACs of a dense model whose saving is measured when a search ends: fewer take as long as calling torch does, more
would keep the user waiting."""


BESIDE = ("out", "device", "data_root", "tickets", "preset", "runs_at_once", "tensorboard", "observer", "progress")
"""What `search` takes beside settings."""


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
    observer: Observer | None = None,
    progress: bool = True,
    report: bool = True,
    command: str | None = None,
    **settings: Unpack[Settings],
) -> SearchResult:
    """Search for graph lottery tickets.

    Args:
        data: a PyG `Data` with x, edge_index, y and the three masks (for link prediction x and edge_index are
            enough), and edge_weight and edge_attr where edges have them (docs/guides/own-graph.md); or the name of a
            dataset, as `dataset` has it, which is loaded without it.
        out: run directory. With it, everything is written there and an interrupted or finished search continues, with
            more levels or more seeds where these are asked for; without it, nothing is written.
        device: "cpu", "cuda", "cuda:1" …, or "auto".
        data_root: where datasets are looked for first.
        tickets: which tickets are kept: those of the "best" level, "all" or "none".
        preset: "default", "tuned", "paper", "ugs" or "quick"; `settings` override it.
        runs_at_once: how many runs share a GPU's kernels and memory (default: as many as fit); recorded, and kept when
            a search continues. On a CPU each run is trained by itself.
        tensorboard: write scalars for TensorBoard into the run directory.
        observer: told about progress (see `aceglt.Observer`).
        progress: show a bar and a line per level, on a terminal and in a notebook. Anywhere, the same lines go to the
            logger `aceglt` at level INFO.
        report: whether a run directory gets its report.html.
        command: how to repeat the search, for the report; without it, this call.
        settings: fields of `Config`, such as dataset, backbone, method, task, axis, levels, seeds, epochs, signal,
            directed, split. What is your own is given as an object or as "module:attribute"
            (docs/guides/own-model.md): `backbone` a torch.nn.Module (class, factory, instance), `method` a class or
            instance, `loss` and `metric` functions.

    Returns:
        The results; `.best` is the winning ticket.

    Raises:
        AcegltError: something given is wrong; the message says what.

    Examples:
        >>> result = aceglt.search(data, method="ugs", levels=2, seeds=2, epochs=3, tickets="all")
        >>> [level["level"] for level in result.results["levels"]]
        [1, 2]
        >>> result.tickets[-1].apply(data).num_edges < data.num_edges
        True
    """
    if tickets not in TICKETS:
        raise ConfigError(f"unknown choice of tickets '{tickets}'; known are {', '.join(TICKETS)}")
    if runs_at_once is not None:
        count()("runs_at_once", runs_at_once)
    if tensorboard:
        check_tensorboard(out)
    if isinstance(data, str | Path):
        if settings.get("dataset") is not None:
            raise ConfigError(f"'{data}' and dataset='{settings['dataset']}' both name a graph; give one of them")
        settings["dataset"], data = str(data), None
    names, own = take(settings)
    check_known(names, BESIDE)
    command = command or as_call({"preset": preset, **names}, *(["data"] if data is not None else []))
    if data is not None:
        if str(given := names.get("dataset") or "").endswith(".npz") and given != datasets.name_of(data):
            raise ConfigError(f"data and dataset='{given}' are two graphs; give one of them")
        names["dataset"] = names.get("dataset") or datasets.name_of(data) or "data"
    config = resolve(preset, **names)
    method = build_method(config, own)
    chosen = frozenset(n for n in PLANNED if names.get(n) is not None)
    chosen |= {"runs_at_once"} if runs_at_once is not None else set()
    with ExitStack() as stack:
        stack.enter_context(usual_torch())
        stack.enter_context(deterministic_torch(config.training.deterministic))
        stack.enter_context(processes.joined())
        source = data if data is not None else datasets.read(config.dataset, data_root)
        name = config.dataset if data is not None else None
        problem = build_problem(config, source, name).to(pick_device(device))
        if not config.directed and processes.leads() and config.dataset.lower() not in datasets.KNOWN:
            say_one_way(source, config.dataset)
        problem = customise(problem, own.loss, own.metric, ("val", "test") if config.test else ("val",))
        backbone = build_backbone(config, problem, own)
        if not backbone.edge_features and processes.leads() and config.dataset.lower() not in datasets.KNOWN:
            say_unread(problem.graph, config.dataset)
        _check_processes(config, backbone)
        if own.prunable is not None:
            config = config.replace(prunable=tuple(name for name, _ in backbone.prunable.shapes))
        leads = processes.leads()
        run = stack.enter_context(RunDir(out)) if out is not None and leads else None
        stack.callback(return_memory)
        watchers = [observer] if observer is not None and leads else []
        policy, shown = tickets if leads else "none", progress and leads

        def runner(config: Config, run: RunDir | None, policy: str) -> _Runner:
            planner = Planner(problem, backbone, config, runs_at_once, chosen, batches(method))
            made = _Runner(planner, processes.agreed(_plan(planner, run)), method, run, policy, watchers, command)
            if run is not None:
                run.claim(made.config, problem.fingerprint, policy)
            return made

        if run is not None:
            config, more = run.seeds_to_add(config, PLANNED)
            if more:
                _add_seeds(run, config, more, partial(runner, policy="none" if policy == "none" else "all"), shown)
        whole = runner(config, run, policy)
        whole.source, whole.own, whole.report = source, own.backbone, report
        if run is not None and tensorboard:
            whole.scalars = stack.enter_context(Scalars(run.tensorboard))
        return whole.go_watched(shown)


def _add_seeds(
    run: RunDir, config: Config, more: tuple[int, ...], runner: Callable[[Config, RunDir], _Runner], shown: bool
) -> None:
    """Search further seeds as far as a finished run went, in a run directory inside it, and join them to its own."""
    if processes.count() > 1:
        raise ConfigError("seeds are added to a finished run by one process; use another --out with several")
    before = run.read_config()
    results = results_of(run.path)
    planned: dict[str, Any] = {name: before.flat()[name] for name in PLANNED}
    as_far = config.replace(
        seeds=more, levels=len(results["levels"]), patience=None, target_model=None, target_graph=None, **planned
    )
    left = RunDir(run.more_seeds)
    begun = left.read_config().seeds if left.config.exists() else more
    if set(begun) <= set(before.seeds):  # joined, but then killed
        shutil.rmtree(run.more_seeds)
    elif begun != more:
        asked = ",".join(map(str, sorted({*before.seeds, *begun})))
        raise RunError(
            f"{run.path}: other seeds are being added; finish them with --seeds {asked}, or delete {run.more_seeds}"
        )
    with RunDir(run.more_seeds) as part:
        added = runner(as_far, part)
        added.go_watched(shown)
        sizes = {run: len(before.seeds), part: len(more)}
        here, there = (checkpoint.load(of.final, added.search.total, runs) for of, runs in sizes.items())
        for path in part.tickets.glob("level_*.safetensors"):
            replace(Ticket.load(path), config=config).save(run.tickets / path.name)
    have = [*before.seeds, *more]
    try:
        state = joined(here, there, [have.index(seed) for seed in config.seeds])
    except ValueError as problem:
        raise RunError(f"{run.path}: seeds cannot be added ({problem}); choose another --out") from None
    # First the joined state beside that of the finished run, then the configuration that goes with it.
    checkpoint.save(run.checkpoint, state)
    write_checked_json(run.results, {**results, "finished": False})
    run.change(run.read_config().replace(seeds=config.seeds), added.problem.fingerprint)
    shutil.rmtree(run.more_seeds)


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
    observers: Sequence[Observer]
    command: str
    source: Any = None
    """The data that was given, or loaded."""
    own: Any = None
    """The user's own model, if it is one."""
    report: bool = True
    scalars: Scalars | None = None
    fell_back: bool = False
    """Whether memory ran out once."""
    kept: dict[int, list[Ticket]] = field(default_factory=dict)
    """By level; used when there is no run directory."""
    spared: frozenset[Path] = frozenset()
    """Tickets that are kept whatever the policy."""
    writing: Background = field(default_factory=Background)
    """Of a stage's files."""

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
        self._tell("on_phase", level, phase)

    def on_training(self, runs: int, epochs: int) -> None:
        self._tell("on_training", runs, epochs)

    def on_epoch(self, epoch: int, epochs: int, runs: int, best: Callable[[], float]) -> None:
        self._tell("on_epoch", epoch, epochs, runs, best)

    def on_test(self, level: int) -> None:
        self._log("test read", level=level)
        self._tell("on_test", level)

    def _tell(self, event: str, *facts: Any) -> None:
        for observer in self.observers:
            tell(observer, event, *facts)

    def go_watched(self, shown: bool) -> SearchResult:
        """Search, with a bar if it is wanted and anybody can see it."""
        console = Console(stderr=True)
        if not (shown and visible(console)):
            return self.go()
        with SearchProgress(console, self.config, self.method) as bar:
            self.observers = [*self.observers, bar]
            return self.go()

    def go(self) -> SearchResult:
        state = start = self._begin()
        with self.writing:
            for state, params in self._stages(start):
                results = summarise(self.search, state, finished=False)
                tickets = self._tickets(state, params) if params is not None else []
                if self.run is not None:  # while the next stage is trained
                    self.writing.begin(partial(self._write, state.to("cpu"), results, tickets))
                elif tickets:
                    self.kept[state.level] = tickets
                    self._drop_tickets(results)
                if params is not None:  # here, before the next level's phases: a sweep reads the last line
                    self._log("level", level=state.level, val=state.records[-1].outcome.val)
                if state.selected is None:
                    logging.getLogger("aceglt").info(level_in_words(results, self.config.stopping.levels))
                    self._tell("on_level", dict(results))  # its own: these are being written
        return self._finish(state)

    def _write(self, state: State, results: dict[str, Any], tickets: Sequence[Ticket]) -> None:
        """A stage's files: what a search goes on from before what is derived from it."""
        assert self.run is not None
        run, workers = self.run, max(1, min(4, len(tickets), os.cpu_count() or 1))
        with ThreadPoolExecutor(workers) as pool:  # to pack and hash them takes longer than a level on a GPU
            list(pool.map(lambda ticket: ticket.save(run.ticket(ticket.level, ticket.seed)), tickets))
        checkpoint.save(run.checkpoint, state)
        run.final.unlink(missing_ok=True)
        self._publish(results)

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
        self.writing.wait()
        torch.cuda.empty_cache()
        self._follow(smaller)
        if self.run is not None:
            self.run.change(self.config, self.problem.fingerprint)
        self._record_plan("out of memory; now")
        yield from self._stages(state)

    def _record_plan(self, said: str) -> None:
        """Say how memory is used, unless it is a full batch as asked for that fits, and write it down."""
        plan, needed, text = self.plan, self.plan.needed, f"{said} {self.plan}"
        if self.problem.device.type == "cpu":
            needed = self.planner.whole_program(plan)
            text += f"; the process takes about {size_in_words(needed)} in all"
        if self.run is not None:
            before = self.run.read_environment()
            kept = {name: value for name, value in before.items() if name in ("peak_memory", "started")}
            facts: dict[str, Any] = {"runs_at_once": self.search.runs_at_once, "partitions": plan.partitions}
            facts |= {"needed_memory": needed, "free_memory": plan.free}
            here = {
                **environment(self.problem.device),
                "backend": self.search.backend.description,
                "tickets": None if self.spared else self.policy,  # or the next session would not spare them
            }
            write_checked_json(self.run.environment, {**here, **facts, **kept})
            self._log("plan", text=text, **facts)
        if processes.leads() and not (plan.fits and self.planner.asked_for(plan) and plan.partitions == 1):
            logging.getLogger("aceglt").warning("memory: %s", text)

    def _begin(self) -> State:
        """The state to go on from."""
        state, run = State(), self.run
        if run is not None and (saved := [path for path in (run.checkpoint, run.final) if path.exists()]):
            state = self._load(saved)
        if run is not None and run.read_environment().get("tickets") is None:  # of an earlier version: who knows
            self.spared = frozenset(run.saved_tickets(self.config.seeds))
        state = processes.agreed(state).to(self.problem.device)
        self._record_plan("training with")
        self._log("resume" if state.dense else "start", level=state.level, command=self.command)
        if run is not None and state.dense is not None:
            self._publish(summarise(self.search, state, finished=False))
        return state

    def _load(self, saved: Sequence[Path]) -> State:
        """The first of the saved states that is of these seeds: a search that was stopped while seeds were added may
        have both."""
        fits = self.search.total, len(self.config.seeds), (self.problem.graph.num_nodes, self.problem.out_features)
        for path in saved[:-1]:
            with suppress(RunError):
                return checkpoint.load(path, *fits)
        state = checkpoint.load(saved[-1], *fits)
        for path in saved[:-1]:  # or it would take the place of the one that fits when the search ends
            path.unlink()
        return state

    def _publish(self, results: dict[str, Any]) -> None:
        if self.run is not None:
            write_checked_json(self.run.results, results)
        if self.scalars is not None:
            self.scalars.update(results)
        self._drop_tickets(results)

    def _tickets(self, state: State, params: Params) -> list[Ticket]:
        """Of a level, one for each seed."""
        runs = range(0 if self.policy == "none" else len(self.config.seeds))
        return [found_ticket(self.search, state, params, run) for run in runs]

    def _drop_tickets(self, results: Mapping[str, Any]) -> None:
        """With policy `best`, keep the tickets of one level: the winner, or the best on validation so far.

        Nothing else is removed: neither what is not ours nor what was kept without a record of the policy.
        """
        if self.policy != "best":
            return
        keep = _level_to_keep(results)
        if self.run is None:
            self.kept = {level: tickets for level, tickets in self.kept.items() if level == keep}
            return
        for path, level in self.run.saved_tickets(self.config.seeds).items():
            if level != keep and path not in self.spared:
                path.unlink()

    def _finish(self, state: State) -> SearchResult:
        results, run, reason = summarise(self.search, state, True), self.run, reason_to_stop(self.search, state)
        self._publish(results)
        notes = [f"stopped after {state.level} of {self.config.stopping.levels} levels: {reason}"]
        notes = notes if state.level < self.config.stopping.levels else []
        if run is None:
            kept = [ticket for tickets in self.kept.values() for ticket in tickets]
            about = environment(self.problem.device)
            return SearchResult(self.config, results, kept, None, notes, about, self.command)
        if run.checkpoint.exists():
            run.checkpoint.replace(run.final)
        recorded = run.read_environment()
        peak = max(recorded.get("peak_memory") or 0, peak_memory(self.problem.device))
        used = {"peak_memory": peak, "backend": self.search.backend.description}
        write_checked_json(run.environment, {**recorded, **used})
        self._log("finish", level=state.level, reason=reason)
        try:
            tickets = [Ticket.load(path) for path in run.saved_tickets(self.config.seeds)]
        except TicketError as problem:
            raise RunError(f"{problem}; without {run.final} the same command makes all tickets again") from None
        found = SearchResult(self.config, results, tickets, run.path, (), run.read_environment(), self.command)
        self._measure(found.best)
        notes += _lost(tickets, results)
        try:
            if self.report:
                write_report(load_runs([run.path], run.path), run.report)
        except ReportUnavailable as problem:
            notes.append(str(problem))
        return replace(found, notes=notes)

    def _measure(self, ticket: Ticket | None) -> None:
        """What the best ticket saves, for the report; nothing where a forward pass is too short or long for that."""
        assert self.run is not None
        known = self.run.read_savings()
        if ticket is None or not MEASURED[0] <= ticket.sizes["dense_macs"] <= MEASURED[1]:
            self.run.savings.unlink(missing_ok=True)
        elif (known.get("level"), known.get("seed")) != (ticket.level, ticket.seed):
            try:
                found = benchmark(
                    ticket, self.source, device=str(self.problem.device), repeats=5, backbone=self.own,
                    pyg="torch_geometric" in sys.modules,  # its import takes longer than many a search
                )  # fmt: skip
            except (AcegltError, RuntimeError, MemoryError) as problem:
                logging.getLogger("aceglt").info("the best ticket's saving was not measured: %s", problem)
                return
            write_checked_json(self.run.savings, {"level": ticket.level, "seed": ticket.seed, **found.to_dict()})

    def _log(self, event: str, **facts: Any) -> None:
        if self.run is not None:
            self.run.log(event, **facts)


def _lost(tickets: Sequence[Ticket], results: Mapping[str, Any]) -> list[str]:
    """A note where the winning level moved as seeds were added, and some of its tickets had been dropped before."""
    level = best_level(results)
    there = [ticket.seed for ticket in tickets if level is not None and ticket.level == level["level"]]
    gone = [str(seed) for seed in results["seeds"] if seed not in there] if there else []
    return [f"tickets of level {level['level']} are gone for seeds {', '.join(gone)}"] if level and gone else []


def _level_to_keep(results: Mapping[str, Any]) -> int:
    best = max(results["levels"], key=lambda level: sum(level["val"]), default={"level": 0})
    return int((best_level(results) or best)["level"])
