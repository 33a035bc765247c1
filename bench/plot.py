"""Line charts as SVG, several small ones in one picture."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

COLUMNS, WIDTH, HEIGHT = 4, 240, 170
LEFT, RIGHT, TOP, BOTTOM = 38, 14, 40, 26
STYLE = """
  text { font: 11px system-ui, sans-serif; fill: #57606a }
  .title { font-weight: 600; fill: #24292f }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .line { fill: none; stroke: #0969da; stroke-width: 2; stroke-linejoin: round }
  .dot { fill: #0969da }
  .page { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #8d96a0 } .title { fill: #e6edf3 } .grid { stroke: #30363d }
    .line { stroke: #4493f8 } .dot { fill: #4493f8 } .page { fill: #0d1117 }
  }
"""


@dataclass(frozen=True)
class Panel:
    """One chart: the size (drawn by its logarithm) and the cost (from 0 up)."""

    title: str
    points: list[tuple[int, float]]


def draw(heading: str, panels: list[Panel]) -> str:
    """All panels in one picture, in rows."""
    columns = min(COLUMNS, len(panels))
    width, height = columns * WIDTH + 16, 34 + ceil(len(panels) / columns) * HEIGHT
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(heading)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="title" x="16" y="22" style="font-size:13px">{escape(heading)}</text>',
    ]
    for number, panel in enumerate(panels):
        x, y = 8 + number % columns * WIDTH, 34 + number // columns * HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> list[str]:
    sizes, costs = [size for size, _ in panel.points], [cost for _, cost in panel.points]
    top, step = _scale(max(costs))
    low, high = log10(min(sizes)), log10(max(sizes))

    def across(size: int) -> float:
        return LEFT + (log10(size) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def up(cost: float) -> float:
        return HEIGHT - BOTTOM - cost / top * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text class="title" x="{LEFT}" y="{TOP - 18}">{escape(panel.title)}</text>']
    for mark in range(round(top / step) + 1):
        y = up(mark * step)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mark * step:g}</text>')
    parts += [f'<text x="{across(size):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{size:,}</text>' for size in sizes]
    line = " ".join(f"{across(size):.1f},{up(cost):.1f}" for size, cost in panel.points)
    parts.append(f'<polyline class="line" points="{line}"/>')
    for size, cost in panel.points:
        parts.append(f'<circle class="dot" cx="{across(size):.1f}" cy="{up(cost):.1f}" r="3">')
        parts.append(f"<title>{size:,}: {cost:.1f} µs</title></circle>")
    return parts


def _scale(most: float) -> tuple[float, float]:
    """The end of an axis from 0 that holds the value, and the step between three to five marks."""
    power = 10 ** floor(log10(most / 2))
    step = next(step * power for step in (1, 2, 5, 10) if most <= 4 * step * power)
    return ceil(most * 1.05 / step) * step, step
