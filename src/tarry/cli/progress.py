"""A progress bar for long work, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def bar(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar over ``size`` bytes (None: not known). The context is a function of bytes more, and messages in all."""
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[sent]:,} messages"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=size, sent=0)
        yield lambda more, sent: progress.update(task, advance=more, sent=sent)
