"""Numbers, sizes, times and bodies, written for people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tarry.base.delay import format_ms

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
_YEAR_MS = 365 * 86_400_000
NONE = "-"
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
PREVIEW_CHARS = 120
BODY_BYTES_MAX = 64 << 10
"""Bytes of a body that are shown; the whole can be downloaded."""
HEX_BYTES_MAX = 4 << 10
_HEX_ROW = 16
# What changes the order or the look of text around it, or has none: shown as a code point instead.
_HIDDEN = frozenset(
    [
        *(*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F)),
        *(*range(0x2060, 0x2070), 0xFEFF, *range(0xE0000, 0xE0080)),
    ]
)


def number(value: float | int | None) -> str:
    """Format a count with thousands separators; :data:`NONE` if there is none."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:,.1f}"


def short(value: float | int | None) -> str:
    """Format a count in about four characters: 12.3 k, 4.56 M."""
    if value is None:
        return NONE
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scaled = value / (1e3 if unit == "k" else size)
            return f"{scaled:.3g} {unit}" if scaled < 999.5 else f"{scaled:.0f} {unit}"
    return number(value)


def size(count: float | int | None) -> str:
    """Format a number of bytes: 1.5 GiB."""
    if count is None:
        return NONE
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_SIZES[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_SIZES[unit]}"


def span(ms: float | int | None) -> str:
    """Format a length of time in its two largest units: 3d 4h, 12s, 250ms; from two years on, in years."""
    if ms is None:
        return NONE
    left = abs(int(ms))
    if left < 1000:
        return f"{left}ms"
    if left >= 2 * _YEAR_MS:
        return f"{left / _YEAR_MS:.1f} years"
    for place, (unit, length) in enumerate(_UNITS):
        if left >= length:
            rest = left % length // _UNITS[place + 1][1] if place + 1 < len(_UNITS) else 0
            return f"{left // length}{unit}" + (f" {rest}{_UNITS[place + 1][0]}" if rest else "")
    return "0s"


def relative(ms: float | int | None, now_ms: int) -> str:
    """Format the distance of an instant from now: "in 3h", "2m ago", "now"."""
    if ms is None:
        return NONE
    if abs(ms - now_ms) < 1000:
        return "now"
    return f"in {span(ms - now_ms)}" if ms > now_ms else f"{span(now_ms - ms)} ago"


def instant(ms: float | int | None) -> str:
    """Format an instant in UTC: 2026-12-01 06:00:00.000."""
    if ms is None:
        return NONE
    return str(format_ms(int(ms))).replace("T", " ").removesuffix("Z").removesuffix("+00:00")


def visible(text: str) -> str:
    """Show characters that are invisible, or change the text's direction, as code points."""
    return "".join(f"⟨U+{ord(c):04X}⟩" if ord(c) in _HIDDEN and c not in "\n\t" else c for c in text)


def name(text: str | None) -> str:
    """Format a short text on one line: a topic, a key, a property."""
    return NONE if text is None else visible(text).replace("\n", "⟨U+000A⟩").replace("\t", "⟨U+0009⟩")


def preview(body: bytes) -> str:
    """Return the beginning of a body on one line."""
    try:
        text = body[: 4 * PREVIEW_CHARS].decode()
    except UnicodeDecodeError as error:
        if error.start == 0 or len(body) <= 4 * PREVIEW_CHARS or error.start < 4 * PREVIEW_CHARS - 4:
            return body[: PREVIEW_CHARS // 3].hex(" ") + (" …" if len(body) > PREVIEW_CHARS // 3 else "")
        text = body[: error.start].decode()
    line = visible(" ".join(text.split()))
    return line if len(line) <= PREVIEW_CHARS and len(body) <= 4 * PREVIEW_CHARS else line[:PREVIEW_CHARS] + " …"


@dataclass(frozen=True, slots=True)
class Body:
    """A body as the console shows it.

    ``text`` is None if the body is not UTF-8, ``json`` if it is not JSON. ``is_cut``: only the beginning is here.
    """

    size: int
    is_cut: bool
    text: str | None
    json: str | None
    hex: str

    @classmethod
    def of(cls, body: bytes) -> Body:
        """Make one of at most :data:`BODY_BYTES_MAX` bytes of a body."""
        is_cut = len(body) > BODY_BYTES_MAX
        text = _text(body[:BODY_BYTES_MAX], is_cut)
        return cls(len(body), is_cut, text, None if is_cut or text is None else _json(body), _hex(body))


def _text(body: bytes, is_cut: bool) -> str | None:
    try:
        return visible(body.decode())
    except UnicodeDecodeError as error:
        # A cut may have gone through a character.
        return visible(body[: error.start].decode()) if is_cut and error.start >= len(body) - 3 else None


def _json(body: bytes) -> str | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return visible(json.dumps(value, indent=2, ensure_ascii=False)) if isinstance(value, dict | list) else None


def _hex(body: bytes) -> str:
    rows = []
    for at in range(0, min(len(body), HEX_BYTES_MAX), _HEX_ROW):
        row = body[at : at + _HEX_ROW]
        texts = "".join(chr(b) if 32 <= b < 127 else "·" for b in row)
        rows.append(f"{at:06x}  {row.hex(' '):<{_HEX_ROW * 3}} {texts}")
    return "\n".join(rows)


def flat(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Nested plain data as (path, value), in order."""
    if isinstance(values, dict):
        named = {f"{prefix}.{key}" if prefix else str(key): value for key, value in values.items()}
        return [pair for path, value in named.items() for pair in flat(value, path)]
    return [(prefix, values)]
