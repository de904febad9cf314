"""Tarry's backend in the places of those that Django's suite tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suite.backend import SuiteBackend
from suite.working import work
from tarry.django import records
from tarry.django.compat import Task, TaskResult


class DummyBackend(SuiteBackend):
    """What is enqueued stays: there is no worker of its topics."""

    prefix = "dummy"

    @property
    def results(self) -> list[TaskResult]:
        return [records.result_of(each) for each in self._rows().order_by("enqueued_at")]

    def clear(self) -> None:
        self._rows().delete()

    def set_status(self, status: str) -> None:
        self._rows().update(status=status)

    def _rows(self) -> Any:
        return records.rows().filter(backend=self.alias)


class ImmediateBackend(SuiteBackend):
    """A worker runs what is enqueued, and is waited for."""

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        result = super().enqueue(task, args, kwargs)
        work(self.alias, [task.queue_name])
        result.refresh()
        return result
