# SPDX-License-Identifier: Apache-2.0
"""Lines on two logarithmic axes as an SVG, without a library."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1000, 600
LEFT, RIGHT, TOP, BOTTOM = 80, 330, 50, 60  # the legend stands in the right margin
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"]
DASHES = ["none", "6,4", "2,3"]
MARGIN = 1.3  # so far beyond the first and the last size


class Axis:
    """A logarithmic axis from `low` to `high`, laid between two pixels."""

    def __init__(self, low, high, begin, end):
        self._low, self._high = math.log10(low), math.log10(high)
        self._begin, self._end = begin, end

    def place(self, value):
        return self._begin + (math.log10(value) - self._low) / (self._high - self._low) * (self._end - self._begin)


def _decades(values):
    """The powers of ten around them: two at least."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0 ** power for power in range(low, max(high, low + 1) + 1)]


def _text(x, y, text, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def _grid(across, up, xs, ys):
    bottom, top, left, right = HEIGHT - BOTTOM, TOP, LEFT, WIDTH - RIGHT
    out = []
    for value in xs:
        x = across.place(value)
        out += [_line(x, bottom, x, top, 'stroke="#dddddd"'), _text(x, bottom + 18, f"{value:,}", more='font-size="11"')]
    for value in ys:
        y = up.place(value)
        out += [_line(left, y, right, y, 'stroke="#dddddd"'), _text(left - 8, y + 4, f"{value:,.10g}", "end")]
    return out


def _series(number, name, points, across, up):
    style = f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2" fill="none" stroke-dasharray="{DASHES[number // len(COLOURS) % len(DASHES)]}"'
    places = [(across.place(x), up.place(y)) for x, y in sorted(points)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    out = [f'<polyline points="{path}" {style}/>']
    out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[number % len(COLOURS)]}"/>' for x, y in places]
    y = TOP + 10 + 20 * number
    x = WIDTH - RIGHT + 20
    return [*out, _line(x, y, x + 28, y, style), _text(x + 36, y + 4, name, "start")]


def svg(title, across_label, up_label, series):
    """series: {name: [(x, y), …]}, all above 0."""
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = _decades([y for points in series.values() for _, y in points])
    across = Axis(xs[0] / MARGIN, xs[-1] * MARGIN, LEFT, WIDTH - RIGHT)
    up = Axis(ys[0], ys[-1], HEIGHT - BOTTOM, TOP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             _text((LEFT + WIDTH - RIGHT) / 2, 24, title, more='font-size="15"'),
             _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, across_label),
             _text(20, HEIGHT / 2, up_label, more=f'transform="rotate(-90 20 {HEIGHT / 2:.0f})"'),
             *_grid(across, up, xs, ys)]
    for number, (name, points) in enumerate(series.items()):
        parts += _series(number, name, points, across, up)
    return "\n".join([*parts, "</svg>"]) + "\n"


def write(path, *what):
    with open(path, "w", encoding="utf-8") as out:
        out.write(svg(*what))
