"""Output of commands: data as JSON lines or text, on stdout; everything else goes to stderr.

Characters that cannot be printed are escaped in all of it.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tarry.base.delay import DUE_MS_MIN, format_ms
from tarry.base.printable import printable

if TYPE_CHECKING:
    from tarry.message.receipt import Receipt


def line(text: str) -> None:
    """Print one line at once: a reader of a pipe should not wait for a full buffer.

    It has what others wrote, so nothing that would steer a terminal is printed.
    """
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def lines(text: str) -> None:
    """Several of them."""
    for each in text.split("\n"):
        line(each)


def note(text: str) -> None:
    """One line on stderr, for a person."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def json_line(value: Any) -> None:
    """One value as a line of JSON on stdout."""
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    # Outside of its texts all of it is printable; JSON itself escapes only some of what is not.
    line(text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text))


def result(data: Mapping[str, Any], text: str | Mapping[str, Any], *, json: bool) -> None:
    """Print a command's result: ``data`` as JSON, or ``text`` (nested values as a tree) for people."""
    if json:
        json_line(data)
    elif isinstance(text, str):
        line(text)
    else:
        tree(text)


def body_fields(body: bytes) -> dict[str, str]:
    """Return a body for JSON: ``body`` if it is UTF-8, else ``body_base64``."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def body_text(body: bytes) -> str:
    """Return a body as a line for people: as it is if printable, else as Python would write it."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return repr(body)
    return text if text.isprintable() else repr(text)


def instant(ms: int | None) -> str | None:
    """UTC milliseconds as ISO 8601."""
    return None if ms is None else format_ms(ms)


def receipt(accepted: Receipt, json: bool, *, outcome: str | None = None) -> None:
    """Print a message's id and due time, its outcome (``outcome``: of what was done now), its handle."""
    became, due = outcome or accepted.outcome, instant(accepted.due_ms)
    if not accepted.handle:
        result({"outcome": became}, became, json=json)
        return
    place = {"id": accepted.id, "seq": accepted.seq, "due_ms": accepted.due_ms, "due": due}
    data = {**place, "handle": accepted.handle, "outcome": became}
    result(data, f"{accepted.id} due {due} {became} {accepted.handle}", json=json)


def _is_of_numbers(texts: Sequence[str]) -> bool:
    return bool(texts) and all(text.replace(",", "").isdigit() for text in texts)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns in line, as wide as they are, so that a pipe gets whole names.

    Numbers are to the right; what is not there is ``-``.
    """
    cells = [[str(c) for c in head], *([("-" if c in (None, "") else printable(str(c))) for c in row] for row in rows)]
    numbers = [_is_of_numbers([row[i] for row in cells[1:] if row[i] != "-"]) for i in range(len(head))]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        aligned = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numbers, strict=True))
        line("  ".join(aligned).rstrip())


def tree(values: Mapping[str, Any], indent: str = "") -> None:
    """Nested values as indented lines."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            line(f"{indent}{name}:")
            tree(value, indent + "  ")
        elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
            line(f"{indent}{name}:")
            for each in value:
                line(f"{indent}  - " + ", ".join(f"{part}: {shown(part, said)}" for part, said in each.items()))
        else:
            line(f"{indent}{name}: {shown(name, value)}")


def shown(name: str, value: object) -> str:
    """Return a value for people; an instant, known by its name, also as one."""
    if value in (None, ""):
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if name.endswith("_ms") and isinstance(value, int) and value > DUE_MS_MIN:
        return f"{value} ({format_ms(value)})"
    return str(value)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    return str(value)
