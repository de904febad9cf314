"""The demo's progress: a bar on a terminal, a line every few seconds elsewhere.

All of it goes to stderr: stdout is for the report.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

LINE_S = 5.0
"""Interval at which a long step prints its progress without a terminal."""


class ScreenStep:
    """One step under way; :meth:`update` it."""

    def __init__(self, title: str, total: float | None, console: Console, progress: Progress | None) -> None:
        self.done = ""
        """The line that stays when the step has ended well."""
        self._title = title
        self._total = total
        self._console = console
        self._progress = progress
        self._task = TaskID(0) if progress is None else progress.add_task(title, total=total, note="")
        self._completed = 0.0
        self._printed_s = time.monotonic()

    def advance(self, by: float, note: str = "") -> None:
        """Add to the progress. Any thread."""
        self.update(self._completed + by, note)

    def update(self, completed: float, note: str = "") -> None:
        """Set the progress; ``note`` describes the current work."""
        self._completed = completed
        if self._progress is not None:
            self._progress.update(self._task, completed=completed, note=escape(note))
        elif time.monotonic() - self._printed_s >= LINE_S:
            self._printed_s = time.monotonic()
            share = f" {completed / self._total:4.0%}" if self._total else ""
            self._console.print(f"  {escape(self._title)}:{share} {escape(note)}".rstrip())


class Screen:
    """Prints progress, one step at a time."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str, style: str = "") -> None:
        """Print a line that stays."""
        self.console.print(escape(text), style=style)

    @contextmanager
    def step(self, title: str, total: float | None = None) -> Iterator[ScreenStep]:
        """Show a step that takes a while. ``total``: the amount of work, if it is known."""
        started = time.monotonic()
        if self.console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn())
            with Progress(
                *columns, TextColumn("{task.fields[note]}"), console=self.console, transient=True
            ) as progress:
                step = ScreenStep(title, total, self.console, progress)
                yield step
        else:
            self.say(f"… {title}")
            step = ScreenStep(title, total, self.console, None)
            yield step
        self.say(f"✓ {step.done or title} ({time.monotonic() - started:.1f} s)")
