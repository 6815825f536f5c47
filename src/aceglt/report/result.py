"""What a search found, as an object: in a few lines, as a table, a plot, a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aceglt.config import Config
from aceglt.errors import ConfigError, RunError
from aceglt.report import load_runs, write_report
from aceglt.report.charts import as_plotly, sparsity_figure
from aceglt.report.terminal import LEVEL_COLUMNS, level_rows, title, winner
from aceglt.report.view import RunView, by_setting, distinct_names
from aceglt.runs.directory import RunDir, is_run, results_of
from aceglt.searches.results import per_seed
from aceglt.searches.sketch import curves
from aceglt.searches.statistics import best_level, mean_std, metric_in_words
from aceglt.searches.wording import SIDE_OF, escape, html_table, plus_minus, quantity
from aceglt.tickets.ticket import Ticket

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class SearchResult:
    """What a search found.

    Examples:
        >>> result = aceglt.search(data, method="random", levels=1, seeds=2, epochs=2)
        >>> result
        random on data, gcn, model axis, node task: 1 level, 2 seeds, accuracy in %
        dense  test ..., val ..., ... k MACs
        best   ...
    """

    config: Config
    results: Mapping[str, Any]
    """The content of results.json."""
    tickets: Sequence[Ticket]
    """One per seed of the kept levels."""
    path: Path | None
    """The run directory, if there is one."""
    notes: Sequence[str] = ()
    """What the user should know, such as why there is no report."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Versions, device and date."""
    command: str = ""
    """How to repeat it."""

    @property
    def best(self) -> Ticket | None:
        """The `strict` winner: of the sparsest level whose mean validation matches dense, the seed that validates best.

        None if no level wins or no tickets were kept.
        """
        level = best_level(self.results)
        candidates = [t for t in self.tickets if level is not None and t.level == level["level"]]
        return max(candidates, key=lambda t: t.metrics["val"] or 0.0, default=None)

    def to_dataframe(self) -> DataFrame:
        """A row for each level (0 is dense) and seed, as a pandas data frame.

        Examples:
            >>> aceglt.search(data, method="random", levels=1, seeds=2, epochs=2).to_dataframe()[["level", "seed"]]
               level  seed
            0      0     0
            1      0     1
            2      1     0
            3      1     1
        """
        return data_frame(per_seed(self.results))

    def plot(self, *others: SearchResult) -> Any:
        """Quality against sparsity as a plotly figure, with those of other searches of the same setting beside it.

        Examples:
            >>> result = aceglt.search(data, method="random", levels=1, seeds=2, epochs=2)
            >>> result.plot().layout.xaxis.title.text
            'weights pruned (%)'
        """
        return plot([one.view for one in (self, *others)])

    def report(self, path: str | Path, *others: SearchResult) -> Path:
        """Write the HTML report of the search, or of several side by side, and return where it is.

        Examples:
            >>> aceglt.search(data, method="random", levels=1, seeds=2, epochs=2).report("report.html")
            PosixPath('report.html')
        """
        views = [one.view for one in (self, *others)]
        write_report(distinct_names(views), Path(path))
        return Path(path)

    @property
    def view(self) -> RunView:
        """What reports and plots know of it."""
        if self.path is not None:
            return load_runs([self.path], self.path)[0]
        name, found = str(self.results["label"]), dict(self.results)
        return RunView(name, found, self.config.to_dict(), self.command, [], dict(self.environment))

    def __repr__(self) -> str:
        r = self.results
        dense = f"test {plus_minus(r['dense']['test'])}, val {plus_minus(r['dense']['val'])}"
        lines = {"dense": f"{dense}, {quantity(r['dense']['macs'])} MACs"}
        lines |= {"best": winner(r, "strict")} if r["levels"] else {}
        lines |= {} if self.path is None else {"run": str(self.path)}
        return "\n".join([title(r), *(f"{name:<7}{text}" for name, text in lines.items())])

    def _repr_html_(self) -> str:
        head, *more = repr(self).splitlines()
        rows = [LEVEL_COLUMNS, *level_rows(self.results)]
        words = "".join(f"<br>{escape(line)}" for line in more)
        return f"<p><b>{escape(head)}</b>{words}</p>{sketch([self.view])}{html_table(rows)}"


def load_run(path: str | Path) -> SearchResult:
    """Open a run directory: what `search` returned when it was made. An unfinished run has what it has found so far.

    Raises:
        AcegltError: there is no run, or a file of it is damaged.

    Examples:
        >>> _ = aceglt.search(data, method="random", levels=1, seeds=2, epochs=2, out="run")
        >>> aceglt.load_run("run").results["label"]
        'random'
    """
    run = RunDir(path)
    if not is_run(run.path):
        hint = "; it is the folder of a sweep: aceglt.load_sweep opens it" if (run.path / "sweep.json").exists() else ""
        raise ConfigError(f"{path} is not a run directory (it has no config.json){hint}")
    view = load_runs([run.path], run.path)[0]
    found = results_of(run.path)
    tickets = [Ticket.load(file) for file in run.saved_tickets(found["seeds"])]
    notes = [] if found.get("finished", True) else ["the search has not finished; its command continues it"]
    return SearchResult(run.read_config(), found, tickets, run.path, notes, view.environment, view.command)


def data_frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Rows as a pandas data frame; ConfigError without pandas."""
    try:
        import pandas
    except ImportError:
        raise ConfigError("to_dataframe needs pandas: pip install pandas") from None
    return pandas.DataFrame(rows)


def plot(views: Sequence[RunView]) -> Any:
    """A plotly figure, with a panel for each dataset, backbone, task, metric and axis."""
    groups = by_setting(distinct_names(views))
    if not groups:
        raise RunError("there are no levels to draw")
    return as_plotly(*(sparsity_figure(*group) for group in groups), titles=[" ".join(g[0].setting) for g, _ in groups])


def sketch(views: Sequence[RunView]) -> str:
    """A small picture of runs for each dataset, backbone, task, metric and axis, by their means."""
    groups: dict[tuple[str, ...], list[RunView]] = {}
    for view in views:
        if view.levels:
            groups.setdefault(tuple(view.setting), []).append(view)
    titles = {setting: f"<p>{escape(' '.join(setting))}</p>" if len(groups) > 1 else "" for setting in groups}
    return "".join(titles[setting] + _picture(group) for setting, group in groups.items())


def _picture(with_levels: Sequence[RunView]) -> str:
    first = with_levels[0]
    reading = first.readings[0]
    lines = {
        view.name: [(100 * level[view.sparsity], 100 * mean_std(level[reading])[0]) for level in view.levels]
        for view in distinct_names(with_levels)
    }
    dense = 100 * mean_std(first.dense[reading])[0]
    across = f"{SIDE_OF[first.sparsity]} pruned, %"
    return curves(lines, dense, across, f"{reading} {metric_in_words(first.metric)}, %")
