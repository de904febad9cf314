"""Pages from Jinja2 templates: all values are escaped, except those that are marked as SVG."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarry.base.delay import format_ms
from tarry.base.errors import NotFoundError
from tarry.base.extras import missing_extra
from tarry.base.pages import LOOK

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """Return the HTML of ``templates/<template>``.

    Raises:
        NotFoundError: Jinja2 is not installed; says how.
    """
    from tarry.base.version import VERSION

    return _environment().get_template(template).render(version=VERSION, **values)


def write(path: Path, html: str) -> None:
    """Write a page whole or not at all: a reader meanwhile sees the former one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(html, encoding="utf-8")
    fresh.replace(path)


def instant(ms: float | None) -> str:
    """Format an instant in UTC, for a person: "2026-11-21 14:30:00.250"; "-" for none."""
    if ms is None:
        return "-"
    return format_ms(int(ms // 1)).replace("T", " ").removesuffix("Z")


def late(ms: float | None) -> str:
    """Format milliseconds for people, with fewer places the more there are; "-" for none."""
    if ms is None:
        return "-"
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:,.1f}" if ms >= 10 else f"{ms:,.2f}"


def size(count: float) -> str:
    """Format bytes for people."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise NotFoundError(missing_extra("a report", "spark", error)) from error
    environment = Environment(
        loader=FileSystemLoader([Path(__file__).parent / "templates", LOOK]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"instant": instant, "late": late, "size": size, "n": lambda value: f"{value:,}"}
    return environment
