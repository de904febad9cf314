"""All figures of a broker at one moment, as plain data: for its metrics, and for people."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from tarry.broker.queries.lateness import Lateness
from tarry.groups import ConsumerGroups
from tarry.intake import Intake
from tarry.log.files import Files, OsFiles
from tarry.message.receipt import TopicPending
from tarry.queue import ReadyLog
from tarry.store import Snapshot
from tarry.wheel import Wheel

SUMMED = ("accepted", "cancelled", "fired", "pending", "ready")


def topics(
    intake: Intake, ready: ReadyLog, entries: Sequence[TopicPending], most: int, always: Collection[str]
) -> dict[str, Any]:
    """Return the figures of topics: ``listed``, ``sums`` of all, and how many there are.

    ``listed``: the ``most`` topics with the most messages ever accepted, and ``always``.
    """
    accepted, cancelled, fired = dict(intake.accepted), dict(intake.cancelled), ready.ends()
    rows: list[dict[str, Any]] = [
        {
            "topic": e.topic,
            "accepted": accepted.get(e.topic, 0),
            "cancelled": cancelled.get(e.topic, 0),
            "fired": fired.get(e.topic, 0),
            "pending": e.pending,
            "ready": e.ready,
            "next_due_ms": e.next_due_ms,
        }
        for e in entries
    ]
    listed = heapq.nlargest(most, rows, key=lambda r: r["accepted"])
    chosen = {row["topic"] for row in listed}
    listed += [row for row in rows if row["topic"] in always and row["topic"] not in chosen]
    return {"count": len(rows), "sums": {n: sum(r[n] for r in rows) for n in SUMMED}, "listed": listed}


def groups(groups: ConsumerGroups, most: int, always: Collection[tuple[str, str]]) -> dict[str, Any]:
    """Return the figures of groups: ``listed``, ``lag`` of all, and how many there are.

    ``listed``: the ``most`` groups that have the most messages left, and ``always``, as
    :class:`tarry.api.group_info.GroupInfo` has them.
    """
    lags = [(group.unsettled, group) for group in groups.all()]
    listed = [group for _, group in heapq.nlargest(most, lags, key=lambda entry: entry[0])]
    listed += [g for _, g in lags if (g.topic_name, g.name) in always and g not in listed]
    infos = [asdict(groups.info(group)) for group in listed]
    return {"count": len(lags), "lag": sum(lag for lag, _ in lags), "listed": infos}


def store(place: tuple[str, str], snapshot: Snapshot) -> dict[str, Any]:
    """Return the store's place, its table and its files, as the broker sees them now."""
    files = snapshot.files
    return {
        "uri": place[0],
        "table_id": place[1],
        "version": snapshot.version,
        "committed_seq": snapshot.committed_seq,
        "files": len(files),
        "bytes": int(files.size.sum()),
        "rows": int(files.rows.sum()),
    }


def wheel(wheel: Wheel) -> dict[str, Any]:
    """Return the figures of the messages in memory."""
    with wheel.lock:
        return {
            "rows": wheel.rows,
            "bytes": int(wheel.bytes),
            "loaded_until_ms": wheel.loaded.due_ms,
            "next_due_ms": wheel.next_due(),
        }


def intake(intake: Intake, committed_seq: int) -> dict[str, int]:
    """Return the figures of the intake's messages that the store does not have."""
    first, end = intake.first_seq, intake.published_seq
    return {
        "first_seq": first,
        "next_seq": end,
        "waiting_rows": max(0, end - max(first, committed_seq)),
        "waiting_bytes": intake.bytes_from(committed_seq),
        "bytes": intake.bytes_from(first),
    }


def fsyncs(files: Files) -> dict[str, Any] | None:
    """Microseconds; None where nobody measures them."""
    return files.syncs_us.histogram().to_json() if isinstance(files, OsFiles) else None


def lateness(of: Lateness) -> dict[str, Any]:
    """Return histograms in milliseconds, as :meth:`tarry.base.histogram.Histogram.to_json` gives them.

    ``overdue``: number of messages that came after their due time.
    """
    return {
        "overdue": of.overdue(),
        "queued": of.queued().to_json(),
        "delivered": of.delivered().to_json(),
        "topics": {topic: histogram.to_json() for topic, histogram in of.by_topic().items() if histogram.count},
    }
