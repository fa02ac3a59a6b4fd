"""Small line plots as SVG text: a grid of panels. Colours are readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, COLUMNS = 250, 150, 3  # of a panel; and panels side by side
LEFT, RIGHT, TOP, BOTTOM = 14, 92, 30, 22  # space around the lines of a panel
TEXT, AXIS = "#808080", "#b0b0b0"
COLORS = ("#2f81f7", "#d29922", "#3fb950", "#db61a2", "#8b6cef", "#e5534b")


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    labels: Sequence[str]  # of the points
    series: Mapping[str, Sequence[float | None]]  # None: no point here


def plot(panels: Sequence[Panel]) -> str:
    """All panels, with one legend above them. A series has the same colour in every panel."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.series))
    colors = {name: COLORS[number % len(COLORS)] for number, name in enumerate(names)}
    lines = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * WIDTH, 24 + lines * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="10" fill="{TEXT}">'
    ]
    for number, (name, color) in enumerate(colors.items()):
        parts.append(f'<circle cx="{10 + 120 * number}" cy="12" r="4" fill="{color}"/>')
        parts.append(f'<text x="{18 + 120 * number}" y="15">{escape(name)}</text>')
    for number, panel in enumerate(panels):
        x, y = number % COLUMNS * WIDTH, 24 + number // COLUMNS * HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel, colors), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, colors: Mapping[str, str]) -> Iterator[str]:
    high = max(
        (value for values in panel.series.values() for value in values if value is not None), default=1
    )
    steps = max(len(panel.labels) - 1, 1)

    def at(number: int, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * number / steps
        return round(x, 1), round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / high, 1)

    base = HEIGHT - BOTTOM
    yield f'<text x="{LEFT}" y="18" font-weight="600">{escape(panel.title)}</text>'
    yield f'<line x1="{LEFT}" y1="{base}" x2="{WIDTH - RIGHT}" y2="{base}" stroke="{AXIS}"/>'
    yield f'<text x="{LEFT}" y="{base + 13}">{escape(panel.labels[0])}</text>'
    if len(panel.labels) > 1:
        yield f'<text x="{WIDTH - RIGHT}" y="{base + 13}" text-anchor="end">{escape(panel.labels[-1])}</text>'
    lowest = HEIGHT  # labels of the last points must not lie on each other
    last = {name: _last(values) for name, values in panel.series.items()}
    for name in sorted(last, key=lambda name: last[name][1]):
        points = [at(n, value) for n, value in enumerate(panel.series[name]) if value is not None]
        color = colors[name]
        if len(points) > 1:
            path = " ".join(f"{x},{y}" for x, y in points)
            yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
        yield from (f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>' for x, y in points)
        x, y = points[-1]
        lowest = min(y + 3, lowest - 11)
        yield f'<text x="{x + 7}" y="{lowest}" fill="{color}">{last[name][1]:,g}</text>'


def _last(values: Sequence[float | None]) -> tuple[int, float]:
    return max((number, value) for number, value in enumerate(values) if value is not None)
