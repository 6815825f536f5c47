"""Small drawings for notebooks: inline SVG that needs no script and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aceglt.searches.statistics import RankTest
from aceglt.searches.wording import escape

# Okabe and Ito's colours, their light ones darkened: each stands out from white and from a dark page.
PALETTE = (
    "#2580C3", "#D55E00", "#009E73", "#CC79A7", "#A37B00", "#7A6FD0", "#D1495B", "#16919E", "#6E8B2B", "#B04FB5",
    "#9C6B4E", "#5F7FA8",
)  # fmt: skip
NEUTRAL = "#808080"
_FONT = "font:12px system-ui,sans-serif;fill:currentColor"

Points = Sequence[tuple[float, float]]


def curves(lines: Mapping[str, Points], level: float | None, across: str, up: str, width: int = 460) -> str:
    """Named lines of points in percent, and a dashed one at a level, between axes that fit them."""
    height, left, top, bottom = 200, 46, 22, 34
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    ys = [y for _, y in points] + ([] if level is None else [level])
    low, high, right = min(ys), max(ys), max(max(x for x, _ in points), 1e-9)
    margin = max(0.08 * (high - low), 0.2)
    low, high = low - margin, high + margin

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (width - left - 12) * x / right, top + (height - top - bottom) * (high - y) / (high - low)

    parts = []
    for y in (low + margin, high - margin):
        parts.append(f'<text x="{left - 6}" y="{place(0, y)[1] + 4:.1f}" text-anchor="end">{y:.1f}</text>')
    if level is not None:
        y = place(0, level)[1]
        dashed = f'stroke="{NEUTRAL}" stroke-dasharray="5 4"'
        parts.append(f'<line x1="{left}" x2="{width - 12}" y1="{y:.1f}" y2="{y:.1f}" {dashed}/>')
        parts.append(f'<text x="{width - 12}" y="{y - 4:.1f}" text-anchor="end" fill-opacity="0.7">dense</text>')
    for i, (name, line) in enumerate(lines.items()):
        colour, placed = PALETTE[i % len(PALETTE)], [place(*point) for point in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}')
        if len(lines) > 1:
            x, y = placed[-1]
            parts.append(f'<text x="{x:.1f}" y="{y - 6:.1f}" text-anchor="end">{escape(name)}</text>')
    parts.append(f'<text x="{width - 12}" y="{height - 20}" text-anchor="end">{right:.0f}</text>')
    parts.append(f'<text x="{left}" y="{height - 20}">0</text><text x="2" y="14">{escape(up)}</text>')
    parts.append(f'<text x="{(left + width) / 2}" y="{height - 6}" text-anchor="middle">{escape(across)}</text>')
    return _svg(width, height, f"{up} against {across}", parts)


def bars(rows: Sequence[tuple[str, float, str]], title: str, width: int = 460) -> str:
    """A bar for each (name, share of the longest, words)."""
    parts = []
    for i, (name, share, words) in enumerate(rows):
        y, long = 8 + 24 * i, 0.5 * width * min(1.0, max(0.0, share))
        parts.append(f'<text x="0" y="{y + 12}">{escape(name)}</text>')
        parts.append(f'<rect x="110" y="{y}" width="{long:.1f}" height="15" fill="{PALETTE[0]}"/>')
        parts.append(f'<text x="{116 + long:.1f}" y="{y + 12}">{escape(words)}</text>')
    return _svg(width, 12 + 24 * len(rows), title, parts)


def rank_diagram(names: Sequence[str], test: RankTest) -> str:
    """Mean ranks on a line, best on the left, with bars that join methods that are not told apart."""
    order = sorted(range(len(names)), key=lambda i: test.means[i])
    half, last = (len(order) + 1) // 2, len(names)
    left, wide, axis = 60 + 7 * max(map(len, names)), 380, 62
    first = axis + 20 + 7 * len(test.cliques)  # where the first name is

    def x(rank: float) -> float:
        return round(left + wide * (rank - 1) / (last - 1), 1)

    def path(drawn: str, more: str = "") -> str:
        return f'<path d="{drawn}" stroke="currentColor" fill="none" {more}/>'

    def text(x: float, y: float, anchor: str, words: str) -> str:
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'

    parts = [path(f"M{x(1)},{axis}H{x(last)}")]
    for rank in range(1, last + 1):
        parts += [path(f"M{x(rank)},{axis - 5}v5"), text(x(rank), axis - 9, "middle", str(rank))]
    end = x(1 + min(test.difference, last - 1.0))
    parts.append(path(f"M{x(1)},{axis - 42}v8m0,-4H{end}m0,-4v8"))
    parts.append(text(end + 6, axis - 34, "start", f"critical difference {test.difference:.2f}"))
    for place, i in enumerate(order):
        on_left, mean = place < half, f"{test.means[i]:.2f}"
        y = first + 20 * (place if on_left else last - 1 - place)
        to = left - 12 if on_left else left + wide + 12
        parts.append(path(f"M{x(test.means[i])},{axis}V{y}H{to}", 'stroke-opacity="0.55"'))
        words = f"{names[i]}  {mean}" if on_left else f"{mean}  {names[i]}"
        parts.append(text(to - 4 if on_left else to + 4, y + 4, "end" if on_left else "start", words))
    for row, clique in enumerate(test.cliques):
        start, stop = x(test.means[clique[0]]) - 4, x(test.means[clique[-1]]) + 4
        parts.append(f'<path d="M{start},{axis + 8 + 7 * row}H{stop}" stroke="{PALETTE[1]}" stroke-width="4"/>')
    return _svg(2 * left + wide, first + 20 * half, "Mean ranks", parts, shrinks=False)


def _svg(width: int, height: int, title: str, parts: Sequence[str], shrinks: bool = True) -> str:
    style = f"{'max-width:100%;' if shrinks else ''}{_FONT}"
    label = f'role="img" aria-label="{escape(title)}" style="{style}" xmlns="http://www.w3.org/2000/svg"'
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" {label}>{"".join(parts)}</svg>'
