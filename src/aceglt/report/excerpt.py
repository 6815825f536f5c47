"""A small part of the graph at several levels: edges coloured by importance, as inline SVG."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from aceglt.report.view import RunView
from aceglt.searches.wording import escape, percent

WIDTH, HEIGHT, MARGIN = 360, 270, 22
SHADES = 5
"""Classes of importance, each a fifth of all ranks."""
MOST_LEVELS = 8
"""Of a run; fewer where many runs share a page."""
MOST_SCENES = 24


@dataclass(frozen=True)
class Edge:
    """An edge of the excerpt at one level; `rank` is None where the level's scores say nothing about it."""

    ends: tuple[int, int]
    alive: bool
    rank: float | None
    importance: float | None

    @property
    def shade(self) -> int | None:
        """0 for the least important fifth of the graph's edges, 4 for the most important."""
        return None if self.rank is None else min(SHADES - 1, int(self.rank * SHADES))

    @property
    def words(self) -> str:
        """What the edge is, in a line."""
        told = f"{self.ends[0]} – {self.ends[1]}: {'alive' if self.alive else 'pruned'}"
        if self.rank is None or self.importance is None:
            return told
        return f"{told}, more important than {percent(self.rank, 0)} of the edges (score {self.importance:.4g})"


@dataclass(frozen=True)
class Scene:
    """The excerpt at one level."""

    level: int
    sparsity: float
    edges: list[Edge]

    @property
    def caption(self) -> str:
        """Where it stands."""
        return f"level {self.level}, {percent(self.sparsity)} of the edges pruned"

    @property
    def in_order(self) -> list[Edge]:
        """The edges, what matters most last, on top of the others."""
        return sorted(self.edges, key=lambda edge: (edge.alive, edge.rank or 0))


def scenes(run: RunView, runs: int = 1) -> list[Scene]:
    """The excerpt at the first level, the last and some between, for a page of so many runs; none where it was not
    recorded."""
    most = max(2, min(MOST_LEVELS, MOST_SCENES // runs))
    ends = [(int(a), int(b)) for a, b in (run.results.get("excerpt") or {}).get("edges", [])]
    levels = [level for level in run.levels if level.get("excerpt")] if ends else []
    if len(levels) > most:
        levels = [levels[round(i * (len(levels) - 1) / (most - 1))] for i in range(most)]
    return [scene_of(level, ends) for level in levels]


def scene_of(level: Mapping[str, Any], ends: Sequence[tuple[int, int]]) -> Scene:
    """The excerpt at a level of results.json; `ends` are its edges."""
    seen = level["excerpt"]
    unknown = [None] * len(ends)
    columns = (ends, seen["alive"], seen.get("rank") or unknown, seen.get("importance") or unknown)
    return Scene(level["level"], level["graph_sparsity"], [Edge(*row) for row in zip(*columns, strict=True)])


def draw(scene: Scene, places: Mapping[int, complex]) -> str:
    """The scene as SVG; the page's style gives it colours."""
    label = escape(f"Part of the graph at {scene.caption}")
    lines = "".join(_line(edge, places) for edge in scene.in_order)
    nodes = "".join(
        f'<circle cx="{z.real:.1f}" cy="{z.imag:.1f}" r="3"/><text x="{z.real:.1f}" y="{z.imag - 5:.1f}">{node}</text>'
        for node, z in places.items()
    )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" class="graph">{lines}{nodes}</svg>'


def _line(edge: Edge, places: Mapping[int, complex]) -> str:
    a, b = (places[node] for node in edge.ends)
    kind = ("" if edge.alive else "dead ") + ("unscored" if edge.shade is None else f"shade-{edge.shade}")
    ends = f'x1="{a.real:.1f}" y1="{a.imag:.1f}" x2="{b.real:.1f}" y2="{b.imag:.1f}"'
    return f'<line class="{kind}" {ends}><title>{escape(edge.words)}</title></line>'


def arrange(edges: Sequence[tuple[int, int]]) -> dict[int, complex]:
    """A place for every node: neighbours attract and all nodes repel each other (Fruchterman and Reingold, 1991)."""
    nodes = sorted({node for edge in edges for node in edge})
    place = {node: cmath.rect(1, 2 * math.pi * i / len(nodes)) for i, node in enumerate(nodes)}
    distance, steps = math.sqrt(math.pi / max(1, len(nodes))), 200
    for step in range(steps):
        push = dict.fromkeys(nodes, 0j)
        for a, b in combinations(nodes, 2):
            apart = place[a] - place[b]
            force = apart * distance**2 / max(abs(apart) ** 2, 1e-6)
            push[a] += force
            push[b] -= force
        for a, b in edges:
            force = (place[a] - place[b]) * abs(place[a] - place[b]) / distance
            push[a] -= force
            push[b] += force
        reach = 0.2 * (1 - step / steps)
        for node, force in push.items():
            place[node] += force * min(1, reach / max(abs(force), 1e-9))
    across = _stretch([z.real for z in place.values()], WIDTH)
    down = _stretch([z.imag for z in place.values()], HEIGHT)
    return dict(zip(nodes, map(complex, across, down), strict=True))


def _stretch(values: Sequence[float], size: float) -> list[float]:
    """To the whole of the picture."""
    low, high = min(values), max(values)
    return [MARGIN + (size - 2 * MARGIN) * (v - low) / ((high - low) or 1) for v in values]
