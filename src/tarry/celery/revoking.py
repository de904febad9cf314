"""Revoking a task that is not due yet: it is cancelled in the broker, and the answer is definite.

Celery's own revoke tells all workers to drop the task if they should see it. They forget that when they are restarted;
and no worker has seen a task that waits in the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tarry.api.bounds import KEY
from tarry.api.outcome import Outcome
from tarry.celery.places import EXCHANGES
from tarry.client.sync import Client

log = logging.getLogger(__name__)


def cancel(app: Any, task_id: str) -> Outcome:
    """Cancel a task that was sent with an ``eta`` or ``countdown``, durably.

    The outcome is "done": no worker ever gets it, and it is revoked for who waits for its result. "delivered": it was
    due. "cancelled": it had been cancelled before. "unknown": no such task was known to wait.

    Raises:
        TarryError: the broker refuses, or cannot be reached.
    """
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1)
        transport = connection.transport
        [outcome] = cancel_tasks(transport.tarry, transport.group, [task_id])
    if outcome is Outcome.DONE:
        app.backend.mark_as_revoked(task_id, "revoked", store_result=True)
    return outcome


def cancel_tasks(client: Client, group: str, task_ids: Sequence[str]) -> list[Outcome]:
    """Cancel tasks by their ids in all queues of ``group``; return an outcome for each, in order.

    An id that no key can be is of no task that waits; it keeps no other one from being cancelled.
    """
    best = [Outcome.UNKNOWN] * len(task_ids)
    keys = {at: task_id for at, task_id in enumerate(task_ids) if KEY.fits(task_id)}
    for topic in task_topics(client, group) if keys else ():
        for at, outcome in zip(keys, client.cancel_keys(topic, list(keys.values())), strict=True):
            if outcome is not Outcome.UNKNOWN and best[at] is not Outcome.DONE:
                best[at] = outcome
    return best


def task_topics(client: Client, group: str) -> list[str]:
    """Return the topics of the task queues that ``group`` consumes, by name."""
    topics = {info.topic for info in client.groups() if info.group == group}
    return sorted(topic for topic in topics if not topic.startswith(EXCHANGES))


def on_command(client: Client, group: str, command: dict[str, Any]) -> None:
    """Cancel what a command of remote control revokes, besides the workers that are told."""
    if command.get("method") != "revoke":
        return
    given = (command.get("arguments") or {}).get("task_id")
    task_ids = [given] if isinstance(given, str) else [each for each in given or () if isinstance(each, str)]
    outcomes = cancel_tasks(client, group, task_ids)
    cancelled = [task_id for task_id, outcome in zip(task_ids, outcomes, strict=True) if outcome is Outcome.DONE]
    if not cancelled:
        return
    log.info("revoked before they were due: %s", ", ".join(cancelled))
    from celery import current_app

    for task_id in cancelled:
        current_app.backend.mark_as_revoked(task_id, "revoked", store_result=True)
