"""Small SVG plots, with the page's colours and fonts (CSS), readable in light and dark.

A plot describes itself in words (``<title>`` and ``<desc>``), and lines differ in their dashes, too, not in colour
alone. Positions are rounded: a plot of 2,000 points has some tens of kilobytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup, escape

WIDTH, HEIGHT = 760, 260
LEFT, RIGHT, TOP, BOTTOM = 76, 30, 14, 40
_X1, _Y1 = WIDTH - RIGHT, HEIGHT - BOTTOM
TICKS = 6
_PLAIN_STEPS = (1, 2, 5)
_TIME_STEPS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400, 30 * 86_400, 91 * 86_400, 365 * 86_400, 1825 * 86_400),
)

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Line:
    """A line over time; it is broken at None, where there is no value.

    ``style`` is one of the page's: a, b, c, d.
    """

    name: str
    values: Sequence[float | None]
    style: str
    area: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of each bar. ``style`` as in :class:`Line`."""

    name: str
    values: Sequence[int]
    style: str = "a"


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale from values to positions."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        value = math.log10(max(value, self.low)) if self.log else value
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 1)


def number(value: float) -> str:
    """Format a number in short, for an axis: 1,200, 12 k, 3.5 M."""
    if value == 0:
        return "0"
    for limit, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == ' k' else limit):.3g}{unit}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def milliseconds(value: float) -> str:
    """Format a length of time in the unit that fits: 0.1 ms, 20 ms, 3 s, 2 min, 5 h, 3 d."""
    for limit, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g} ms"


def histogram(
    title: str, bins: Sequence[tuple[float, float, int]], *, marks: Sequence[tuple[str, float]] = ()
) -> Markup:
    """Draw bars over a logarithmic axis of milliseconds.

    Their heights are logarithmic, too, so that a few outliers show.

    Args:
        bins: (from, to, how many), ascending; both bounds above 0.
        marks: values to be pointed out, by name.
    """
    if not bins:
        return _empty(title)
    low, high = bins[0][0], bins[-1][1]
    if high / low < 100:  # otherwise few bins would be bars as wide as the page
        middle = math.sqrt(low * high)
        low, high = middle / 10, middle * 10
    x = Scale(low, high, LEFT, _X1, log=True)
    y = Scale(0.5, max(10.0, max(count for _, _, count in bins) * 4), _Y1, TOP, log=True)
    parts = [_y_axis(y, number, "messages"), _log_ticks(x)]
    for start, end, count in bins:
        x0, x1, top = x.at(start), x.at(end), y.at(count)
        tip = f"{milliseconds(start)} to {milliseconds(end)}: {count:,}"
        parts.append(
            f'<rect class="bar" x="{x0 + 0.5:.1f}" y="{top}" width="{max(1.0, x1 - x0 - 1):.1f}" '
            f'height="{max(0.5, _Y1 - top):.1f}"><title>{escape(tip)}</title></rect>'
        )
    parts += _marks(x, [(name, value) for name, value in marks if value >= low])
    total = sum(count for _, _, count in bins)
    described = f"{total:,} values from {milliseconds(bins[0][0])} to {milliseconds(bins[-1][1])}."
    return _svg(title, f"{described} Both axes are logarithmic.", parts)


def _marks(x: Scale, marks: Sequence[tuple[str, float]]) -> Iterator[str]:
    last, row = -1e9, 0
    for name, value in sorted(marks, key=lambda m: m[1]):
        at = x.at(value)
        row = (row + 1) % 3 if at - last < 60 else 0  # names that are near each other are written in several rows
        last = at
        anchor, offset = ("end", -4) if at > _X1 - 60 else ("start", 4)
        yield f'<line class="mark" x1="{at}" x2="{at}" y1="{TOP}" y2="{_Y1}"/>'
        yield (
            f'<text class="label" x="{at + offset}" y="{TOP + 10 + 13 * row}" text-anchor="{anchor}">'
            f"{escape(name)}</text>"
        )


def lines(
    title: str,
    moments_ms: Sequence[int],
    series: Sequence[Line],
    *,
    unit: str,
    log: bool = False,
    format: Format = number,
) -> Markup:
    """Draw lines over time (UTC), with a legend; ``unit`` is that of the values."""
    values = [v for line in series for v in line.values if v is not None]
    if not values or not moments_ms:
        return _empty(title)
    x = Scale(moments_ms[0], max(moments_ms[-1], moments_ms[0] + 1), LEFT, _X1)
    if log:
        low = 10 ** math.floor(math.log10(max(min(values), 0.01)))
        y = Scale(low, max(low * 10, 10 ** math.ceil(math.log10(max(*values, low * 10)))), _Y1, TOP, log=True)
    else:
        y = Scale(0, _above(max(values)), _Y1, TOP)
    parts = [_y_axis(y, format, unit), _time_ticks(x)]
    for line in series:
        parts += _line(line, moments_ms, x, y)
    first, last = moment(moments_ms[0]), moment(moments_ms[-1])
    described = (
        f"{', '.join(line.name for line in series)}, from {first} to {last} UTC; the highest is {format(max(values))}."
    )
    return _svg(title, described, parts) + _legend(series)


def bars(title: str, moments_ms: Sequence[int], layers: Sequence[Layer], width_ms: int, *, unit: str) -> Markup:
    """Draw a bar for each unit of time.

    It has one layer, or several on top of each other, which then have a legend.
    """
    totals = [sum(column) for column in zip(*(layer.values for layer in layers), strict=True)]
    if not moments_ms or not any(totals):
        return _empty(title)
    x = Scale(moments_ms[0], moments_ms[-1] + width_ms, LEFT, _X1)
    y = Scale(0, _above(max(totals)), _Y1, TOP)
    parts = [_y_axis(y, number, unit), _time_ticks(x)]
    floors = [0] * len(moments_ms)
    for layer in layers:
        for place, (at, value) in enumerate(zip(moments_ms, layer.values, strict=True)):
            if value:
                tip = f"{moment(at)}{f', {layer.name}' if len(layers) > 1 else ''}: {value:,}"
                bottom, top = y.at(floors[place]), y.at(floors[place] + value)
                parts.append(_bar(x.at(at), x.at(at + width_ms), bottom, top, layer.style, tip))
                floors[place] += value
    described = f"From {moment(moments_ms[0])} UTC on; the highest is {max(totals):,} {unit}."
    return _svg(title, described, parts) + (_legend(layers, "swatch") if len(layers) > 1 else Markup(""))


def _bar(left: float, right: float, bottom: float, top: float, style: str, tip: str) -> str:
    gap = 0.5 if right - left > 3 else 0.0
    return (
        f'<rect class="bar {style}" x="{left + gap:.1f}" y="{top}" width="{max(0.8, right - left - 2 * gap):.1f}" '
        f'height="{max(0.5, bottom - top):.1f}"><title>{escape(tip)}</title></rect>'
    )


def _line(line: Line, moments: Sequence[int], x: Scale, y: Scale) -> list[str]:
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in zip(moments, line.values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((x.at(at), y.at(value)))
    parts = []
    for run in filter(None, runs):
        path = "M" + "L".join(f"{a:g} {b:g}" for a, b in run)
        if len(run) == 1:
            parts.append(f'<circle class="dot {line.style}" cx="{run[0][0]}" cy="{run[0][1]}" r="3"/>')
            continue
        if line.area:
            parts.append(f'<path class="area {line.style}" d="{path}L{run[-1][0]:g} {_Y1}L{run[0][0]:g} {_Y1}Z"/>')
        parts.append(f'<path class="line {line.style}" d="{path}"/>')
    return parts


def _y_axis(y: Scale, format: Format, unit: str) -> str:
    if y.log:
        first, last = math.ceil(math.log10(y.low)), math.floor(math.log10(y.high))
        step = max(1, (last - first) // TICKS + 1)
        ticks = [10.0**e for e in range(first, last + 1, step)]
    else:
        step_size = _above(y.high / TICKS)
        ticks = [step_size * i for i in range(int(y.high / step_size + 1e-9) + 1)]
    parts = []
    for tick in ticks:
        at = y.at(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{_X1}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{escape(format(tick))}</text>')
    middle = (TOP + _Y1) / 2
    parts.append(
        f'<text class="unit" transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{escape(unit)}</text>'
    )
    return "".join(parts)


def _log_ticks(x: Scale) -> str:
    first, last = math.ceil(math.log10(x.low) - 1e-9), math.floor(math.log10(x.high) + 1e-9)
    step = max(1, (last - first) // 9 + 1)
    return "".join(_x_tick(x.at(10.0**e), milliseconds(10.0**e)) for e in range(first, last + 1, step)) + _axis()


def _time_ticks(x: Scale) -> str:
    span_s = (x.high - x.low) / 1000
    step_ms = 1000 * next((s for s in _TIME_STEPS_S if span_s / s <= TICKS + 1), _TIME_STEPS_S[-1])
    first = math.ceil(x.low / step_ms) * step_ms
    ticks: list[float] = []
    parts, day = [], ""
    while first <= x.high and len(ticks) < 4 * TICKS:
        ticks.append(first)
        first += step_ms
    for tick in ticks:
        text = moment(tick)
        date, clock = text[:10], text[11:19] if step_ms < 60_000 else text[11:16]
        parts.append(_x_tick(x.at(tick), date if step_ms >= 86_400_000 else clock))
        if step_ms < 86_400_000 and date != day:
            day = date
            parts.append(f'<text class="tick" x="{x.at(tick)}" y="{_Y1 + 31}" text-anchor="middle">{date}</text>')
    return "".join(parts) + _axis()


def _x_tick(at: float, text: str) -> str:
    # A long text at the right edge would be cut.
    place, anchor = (WIDTH - 2, "end") if at + 3.2 * len(text) > WIDTH else (at, "middle")
    return (
        f'<line class="axis" x1="{at}" x2="{at}" y1="{_Y1}" y2="{_Y1 + 4}"/>'
        f'<text class="tick" x="{place}" y="{_Y1 + 17}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _axis() -> str:
    return f'<line class="axis" x1="{LEFT}" x2="{_X1}" y1="{_Y1}" y2="{_Y1}"/>'


def _above(value: float) -> float:
    """Return the next round number."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in _PLAIN_STEPS if step * power >= value * (1 - 1e-9)), 10 * power)


def moment(ms: float | None) -> str:
    """Format a moment in UTC, to the second; "-" for none."""
    if ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # after the year 9999
        return f"{ms:.0f}"


def _legend(series: Sequence[Line | Layer], kind: str = "line") -> Markup:
    each = Markup("").join(
        Markup('<span class="key"><svg viewBox="0 0 24 8" width="24" height="8" aria-hidden="true">')
        + Markup('<path class="{} {}" d="M0 4L24 4"/></svg>{}</span>').format(kind, line.style, line.name)
        for line in series
    )
    return Markup('<div class="legend">{}</div>').format(each)


def _svg(title: str, described: str, parts: Sequence[str]) -> Markup:
    head = Markup('<svg class="plot" viewBox="0 0 {} {}" role="img"><title>{}</title><desc>{}</desc>').format(
        WIDTH, HEIGHT, title, described
    )
    # On a narrow screen it is scrolled sideways, rather than made too small to read.
    return Markup('<div class="scroll" tabindex="0">') + head + Markup("".join(parts)) + Markup("</svg></div>")


def _empty(title: str) -> Markup:
    return Markup('<p class="none" role="img" aria-label="{}: no data">no data</p>').format(title)
