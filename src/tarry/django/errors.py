"""Errors of tasks that no task raised: they stand in a result's ``errors``."""

from __future__ import annotations


class TaskCancelled(Exception):  # noqa: N818 - what a result says, not what went wrong
    """The task was cancelled before it began."""


class WorkerLost(Exception):  # noqa: N818 - as above
    """Its workers ended while they ran it, each time."""
