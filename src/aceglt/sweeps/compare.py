"""A comparison: a sweep with the page that sets its methods beside each other; or that page alone, of results that are
there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aceglt.config import Config
from aceglt.config.methods import label
from aceglt.errors import ConfigError, RunError
from aceglt.files import parse_json, read_regular, write_atomic
from aceglt.files.schema import OBJECT, check
from aceglt.report import ReportUnavailable, RunView, load_runs, plotly_js
from aceglt.report.comparison import Comparison, compare_runs
from aceglt.report.comparison_page import headline, render_comparison
from aceglt.report.result import data_frame, sketch
from aceglt.searches.results import check_results, per_level
from aceglt.searches.sketch import rank_diagram
from aceglt.searches.wording import escape, html_table, text_table
from aceglt.sweeps.grid import NAMED, PLURALS, method_of, plan, read_grid, refuse_graph
from aceglt.sweeps.merged import SweepResult, place_of, write_table
from aceglt.sweeps.run import SweepObserver, sweep

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Unpack

    from aceglt.sweeps.keywords import MachineKeywords

BASELINE = "random"
"""The method that every comparison has."""
PAGE, TABLE, PAIRS, LEVELS, RANKS = "comparison.html", "comparison.csv", "pairs.csv", "levels.csv", "ranks.svg"
"""What a comparison leaves beside the files of a sweep."""


@dataclass(frozen=True, repr=False)
class CompareResult(SweepResult):
    """What a comparison found: a sweep's result whose table and page set methods beside each other.

    Examples:
        >>> result = aceglt.compare(grid, "compared", device="cpu")
        >>> len(result.table())
        2
    """

    @cached_property
    def comparison(self) -> Comparison:
        """Methods × settings: means, ranks, tests between methods, winners and cost."""
        return compare_runs(self.views)

    def table(self) -> DataFrame:
        """A row for each method and setting, as a pandas data frame."""
        return data_frame(self.comparison.records())

    def report(self, path: str | Path) -> Path:
        """Write the page of the comparison, and return where it is."""
        write_atomic(Path(path), render_comparison(self.comparison, plotly_js()).encode())
        return Path(path)

    def __repr__(self) -> str:
        try:
            found = self.comparison
        except RunError:  # searches failed
            return super().__repr__()
        more = [*(f"note: {note}" for note in found.notes), *(f"{c['name']}: {c['status']}" for c in self.failed)]
        return "\n".join([headline(found), *text_table(found.means_rows()), *more])

    def _repr_html_(self) -> str:
        try:
            found = self.comparison
        except RunError:
            return super()._repr_html_()
        return f"<p>{escape(headline(found))}</p>{sketch(self.views)}{html_table(found.means_rows())}"


def compare(
    what: str | Path | Mapping[str, Any] | Sequence[str | Path],
    out: str | Path,
    *,
    tickets: str = "best",
    observer: SweepObserver | None = None,
    progress: bool = True,
    **machines: Unpack[MachineKeywords],
) -> CompareResult:
    """Set methods beside each other, with random pruning and dense: means, paired tests, mean ranks, winners, cost.

    Args:
        what: a grid, as a TOML file or a mapping, whose searches are run as `aceglt.sweep` does, with random pruning
            among them; or run directories, folders of sweeps and results.json files, which are only read.
        out: the folder of the comparison; of a grid, it is that of a sweep. Both have comparison.html, comparison.csv,
            pairs.csv, levels.csv and ranks.svg.
        tickets: which tickets each search keeps: "best", "all" or "none".
        observer: told about progress.
        progress: without an observer, show a bar on a terminal and in a notebook.
        machines: where searches run, as in `aceglt.sweep`.

    Raises:
        AcegltError: something given is wrong, or there are no two methods to compare.

    Examples:
        >>> sorted(aceglt.compare(grid, "compared", device="cpu").comparison.names)
        ['random', 'ugs (labels)']
    """
    refuse_graph(what)
    grid = _grid(what)
    if grid is not None:
        whole = with_baseline(grid)
        _check_comparable(whole)
        found = sweep(whole, out, tickets=tickets, observer=observer, progress=progress, **machines)
        result = CompareResult(found.cells, found.path, found.notes)
    else:
        several = isinstance(what, Sequence) and not isinstance(what, str)
        sources: Any = what if several else [what]
        result = CompareResult(_entries([Path(source) for source in sources]), Path(out).absolute())
        result.comparison  # noqa: B018  (refused before anything is written)
        _make_folder(result.path)
        rows = [{**place_of(cell), **row} for cell in result.cells for row in per_level(cell["results"])]
        write_table(result.path / LEVELS, rows)
    try:
        return write_comparison(result)
    except RunError as problem:
        if not result.failed:
            raise
        return replace(result, notes=[*result.notes, str(problem)])


def _make_folder(path: Path) -> None:
    """The folder of a comparison; what somebody else has there is not overwritten."""
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()) and not any((path / name).exists() for name in (TABLE, "sweep.json")):
        raise RunError(f"{path} is not empty and is no folder of a comparison; choose another --out")


def write_comparison(result: CompareResult) -> CompareResult:
    """Write the page, the tables and the diagram into the folder of a comparison."""
    comparison, folder = result.comparison, result.path
    write_table(folder / TABLE, comparison.records())
    write_table(folder / PAIRS, comparison.pair_records())
    if comparison.test is not None:
        write_atomic(folder / RANKS, rank_diagram(comparison.ranked, comparison.test).encode())
    try:
        result.report(folder / PAGE)
    except ReportUnavailable as problem:
        return replace(result, notes=[*result.notes, str(problem)])
    return result


def with_baseline(grid: Mapping[str, Any]) -> dict[str, Any]:
    """The grid with random pruning among its methods."""
    key = next((key for key in ("methods", "method") if key in grid), "methods")
    found = grid.get(key, [Config.method])
    methods = list(found) if isinstance(found, list | tuple) else [found]
    there = BASELINE in map(method_of, methods)
    rest = {name: value for name, value in grid.items() if PLURALS.get(name, name) != "method"}
    return dict(grid) if there else {**rest, "methods": [*methods, BASELINE]}


def _grid(what: Any) -> Mapping[str, Any] | None:
    """The grid, if it is one: a mapping, or one TOML file."""
    one = what[0] if isinstance(what, Sequence) and not isinstance(what, str) and len(what) == 1 else what
    if isinstance(one, str | Path) and Path(one).suffix == ".toml":
        return read_grid(Path(one))
    return one if isinstance(one, Mapping) else None


def _check_comparable(grid: Mapping[str, Any]) -> None:
    """Refuse a grid of which nothing could be compared, before it is searched."""
    configs = [cell.config for cell in plan(grid)]
    if any(config.stopping.levels == 0 for config in configs):
        raise ConfigError("methods are compared by their levels; levels must be 1 or more")
    if len({(c.dataset, c.backbone, c.task, c.pruning.axis) for c in configs}) == len(configs):
        raise ConfigError(f"the grid has {configs[0].label} alone; it takes two methods to compare")


def _entries(sources: Sequence[Path]) -> list[dict[str, Any]]:
    """Searches whose results are there, as the cells of a sweep."""
    folders = [source for source in sources if not source.is_file()]
    for folder in folders:
        if (folder / "trials.csv").is_file():
            raise ConfigError(
                f"{folder}: a tuning, whose trials have no levels to compare; its settings are for "
                f"aceglt search --config {folder / 'tuned.json'}"
            )
    views = load_runs(folders, Path()) if folders else []
    views += [view for source in sources if source.is_file() for view in read_results(source)]
    return [
        {
            "name": view.folder, "status": "finished", "error": None, "log": "", "varied": {},
            "config": {**{name: view.results[name] for name in NAMED}, **view.config},
            "results": view.results, "environment": view.environment,
        }
        for view in views
    ]  # fmt: skip


def read_results(path: Path) -> list[RunView]:
    """The searches in a JSON file: a results.json, a list of such, or a sweep.json. Beside the results, each may have
    its `config` and its `environment`.

    Raises:
        ConfigError: it is not such a file.
        RunError: results are damaged.
    """
    try:
        found = parse_json(read_regular(path))
    except (OSError, ValueError) as problem:
        raise ConfigError(f"{path}: cannot read results ({problem})") from None
    if isinstance(found, dict) and isinstance(found.get("cells"), list):
        cells = [cell for cell in found["cells"] if isinstance(cell, dict) and isinstance(cell.get("results"), dict)]
        found = [{**cell["results"], "config": cell.get("config")} for cell in cells]
    several = found if isinstance(found, list) else [found]
    views = []
    if not several or not all(isinstance(results, dict) and "levels" in results for results in several):
        raise ConfigError(f"{path}: no results of searches; a results.json, a list of such or a sweep.json has them")
    for number, results in enumerate(several, start=1):
        results.setdefault("finished", True)
        config, places = results.get("config") or {}, results.get("environments") or []
        environment = results.get("environment") or (places[0] if isinstance(places, list) and places else {})
        try:
            check_results(results)
            for name, part in (("config", config), ("environment", environment)):
                check(part, OBJECT, name)
        except (ValueError, TypeError, KeyError) as problem:
            raise RunError(f"{path}: damaged ({problem})") from None
        named = label(results["method"], results["signal"], config.get("method_options") or {})
        ran = str(results.setdefault("label", named))
        place = str(path) if len(several) == 1 else f"{path}:{number}"
        views.append(RunView(ran, results, config, "", [], environment, {}, place))
    return views
