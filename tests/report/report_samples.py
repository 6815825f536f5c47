"""Made-up results of the shape that a search writes."""

from __future__ import annotations

import random
from typing import Any

from aceglt.report import RunView
from aceglt.searches.statistics import Readings, highest_winning, highest_winning_per_seed, winning

MACS = 6_324_600_000
EDGES = [[0, 1], [1, 2], [2, 7], [0, 7], [7, 9]]


def results(
    method: str = "ace",
    axis: str = "model",
    levels: int = 10,
    seeds: int = 5,
    test: bool = True,
    fall: float = 0.05,
    **fields: Any,
) -> dict[str, Any]:
    """A results.json whose readings fall off as sparsity grows."""
    draw = random.Random(f"{method} {axis} {levels} {seeds}")
    dense = _readings(random.Random(7), 0.712, seeds, test)
    entries = [_level(draw, n, dense, axis, fall) for n in range(1, levels + 1)]
    return {
        "format": 1,
        "dataset": "citeseer",
        "backbone": "gcn",
        "method": method,
        "axis": axis,
        "metric": "accuracy",
        "task": "node",
        "signal": "teacher",
        "preset": "default",
        "epochs": 200,
        "seeds": list(range(seeds)),
        "dense": {"val": dense.val, "test": dense.test, "macs": MACS},
        "levels": entries,
        "highest_winning_per_seed": highest_winning_per_seed(dense, entries),
        "highest_winning": highest_winning(entries),
        **fields,
    }


def view(name: str = "ace", **fields: Any) -> RunView:
    """A run with those results."""
    found = results(**fields)
    command = f"aceglt search --dataset {found['dataset']} --method {found['method']} --out runs/{name}"
    config = {"dataset": found["dataset"], "method": {"name": found["method"], "rounds": 6}, "seeds": found["seeds"]}
    tickets = [f"tickets/level_{e['level']:02d}_seed_{s}.safetensors" for e in found["levels"][-1:] for s in (0, 1)]
    return RunView(name, found, config, command, tickets)


def with_diagnostics(run: RunView) -> RunView:
    """The same run with all optional fields of its levels."""
    draw = random.Random(3)
    levels = [{**level, **_optional(draw, level["level"])} for level in run.results["levels"]]
    found = {**run.results, "levels": levels, "excerpt": {"seed": 0, "edges": EDGES}}
    return RunView(run.name, found, run.config, run.command, run.tickets)


def _readings(draw: random.Random, mean: float, seeds: int, test: bool) -> Readings:
    val = [round(draw.gauss(mean, 0.005), 3) for _ in range(seeds)]
    return Readings(val, [round(draw.gauss(mean - 0.002, 0.006), 3) for _ in range(seeds)] if test else None)


def _level(draw: random.Random, number: int, dense: Readings, axis: str, fall: float) -> dict[str, Any]:
    model, graph = 1 - 0.8**number, 1 - 0.95**number
    model, graph = (model if axis != "graph" else 0.2), (graph if axis != "model" else 0.05)
    drop = 0.004 - fall * ((model if axis != "graph" else graph) ** 6)
    found = _readings(draw, 0.712 + drop, len(dense.val), dense.test is not None)
    return {
        "level": number,
        "model_sparsity": round(model, 6),
        "graph_sparsity": round(graph, 6),
        "val": found.val,
        "test": found.test,
        "macs": round(MACS * (1 - model) * 0.97 + MACS * 0.02 * (1 - graph)),
        "seconds": round(90 * 0.9**number, 2),
        "winning": winning(dense, found),
    }


def _optional(draw: random.Random, number: int) -> dict[str, Any]:
    def choice(distinct: int) -> dict[str, list[float]]:
        return {
            "distinct": [round(distinct * draw.uniform(0.9, 1)) for _ in range(3)],
            "ties_at_threshold": [draw.uniform(0, 0.02) for _ in range(3)],
            "noise_correlation": [draw.uniform(-0.05, 0.2) for _ in range(3)],
        }

    return {
        "diagnostics": {"weights": choice(round(1_896_448 * 0.8**number)), "edges": choice(4522)},
        "fluctuation": {side: [draw.uniform(0.1, 0.2) for _ in range(3)] for side in ("weights", "edges")}
        if number > 1
        else None,
        "excerpt": {
            "alive": [number < 3, True, True, True, False],
            "importance": [0.5, 0.9, 1.0, 1.1, None],
            "rank": [0.1, 0.5, 0.9, 1.0, None],
        },
        "epochs": {"select": 560, "retrain": 200},
        "phases": {"select": round(70 * 0.9**number, 2), "retrain": round(25 * 0.9**number, 2)},
    }
