"""Bounds on what the changes of one caller take of the audit log: those of others must not be pushed out of it.

Of one caller, operation and outcome, the first :data:`CHANGES_MAX` lines in a minute are written. The others are
counted, and the count is written when that time is over. Not bounded are changes of who may do what, which do not come
here, and those of a broker that asks nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from tarry.api.audit import NOBODY_ASKED
from tarry.identity.refusals import Line, Windows

CHANGES_MAX = 60
CHANGES_MS = 60_000
CHANGE_BYTES_MAX = 4 << 10
"""Longer details of a change, as JSON, are left out, but for their hash."""
TEXT_MAX = 256
"""Characters of a text that a line has; of a longer one, its length and its hash follow."""


class ChangeBounds:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows = Windows(CHANGES_MAX, CHANGES_MS)

    def take(self, line: Line, now_ms: int) -> list[Line]:
        """Return the lines to write now: this one if there is room, before it what was counted until now."""
        if line["who"] == NOBODY_ASKED.who:
            return [line]
        with self._lock:
            lines = list(self._windows.note((line["who"], line["operation"], line["outcome"]), line, now_ms))
            # Of so many at a time that they are not told apart, all lines are written.
            is_left_out, self._windows.left_out = bool(self._windows.left_out), 0
        return [line] if is_left_out else lines

    def counts(self, now_ms: int, *, all_of_them: bool = False) -> list[Line]:
        """Return the counts of times that are over, or all of them, and forget those."""
        with self._lock:
            return list(self._windows.expire(now_ms + CHANGES_MS if all_of_them else now_ms))


def cut_texts(value: Any) -> Any:
    """Return details whose texts, which any caller may choose, are short."""
    if isinstance(value, Mapping):
        return {name: cut_texts(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [cut_texts(each) for each in value]
    if not isinstance(value, str) or len(value) <= TEXT_MAX:
        return value
    hashed = blake2b(value.encode(errors="replace"), digest_size=16).hexdigest()
    return f"{value[:TEXT_MAX]}… ({len(value)} characters, blake2b {hashed})"
