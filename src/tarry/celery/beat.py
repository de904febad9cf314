"""Beat's entries as series of the broker: ``celery -A shop beat -S tarry.celery.beat:Scheduler``.

Each entry is scheduled once, with a rule by which it comes again. So a beat that is down misses nothing, and two of
them double nothing. An interval's task comes for the first time when the interval has passed. Entries that the broker
has no rule for, as those by the sun, are beat's own as before.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from celery import beat
from celery.schedules import crontab, schedule

from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.celery.places import EXCHANGES
from tarry.celery.revoking import task_topics
from tarry.repeat import Repeat

if TYPE_CHECKING:
    from tarry.client.sync import Client

log = logging.getLogger(__name__)

RECORDS = f"{EXCHANGES}beat"
"""The topic of what beats have scheduled: a message for each app.

It is due when nobody will want it.
"""
FAR = "14000d"
LOOKS, LOOK_S = 10, 0.05
"""Looks for a series before it is said not to be there, and the seconds between two."""


class Scheduler(beat.Scheduler):  # type: ignore[misc]
    """See the module."""

    def setup_schedule(self) -> None:
        """Schedule what is new or has changed, and cancel what beat has no more."""
        super().setup_schedule()
        own, series = {}, {}
        for name, entry in self.schedule.items():
            rule = rule_of(entry, str(self.app.timezone))
            if rule is None:
                own[name] = entry
            else:
                series[name] = (entry, rule)
        with self.app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=3)
            refused = self._keep_series(connection.transport.tarry, connection.transport.group, series)
        self.data = own | {name: series[name][0] for name in refused}

    def _keep_series(self, client: Client, group: str, series: dict[str, tuple[Any, Repeat]]) -> list[str]:
        """Have the broker keep just these; return the names of those that it refuses."""
        refused: list[str] = []
        known, kept = _recorded(client, self.app.main), {}
        for name, (entry, rule) in series.items():
            digest, key = _digest_of(entry, rule), f"beat:{self.app.main}:{name}"
            place = known.get(name, {})
            if place.get("digest") != digest or not topics_with(client, [place["topic"]], key):
                try:
                    self._publish(entry, rule, key, _first_of(client, rule, place.get("topic"), key))
                except InvalidArgumentError as error:
                    log.warning("beat: %s is repeated by beat itself: %s", name, error)
                    refused.append(name)
                    continue
                log.info("beat: %s is repeated by the broker", name)
                place = {"digest": digest, "topic": _topic_with(client, group, key, before=place.get("topic"))}
            kept[name] = place
        for name, place in known.items():
            if kept.get(name, {}).get("topic") != place["topic"]:
                log.info("beat: %s repeats no longer in %s", name, place["topic"])
                client.cancel_key(place["topic"], f"beat:{self.app.main}:{name}")
        client.schedule(RECORDS, json.dumps(kept), delay=FAR, key=_record_key(self.app.main))
        return refused

    def _publish(self, entry: Any, rule: Repeat, key: str, first: datetime | None) -> None:
        options = dict(entry.options)
        if first is not None:
            options.setdefault("tarry_due", first)
        options["headers"] = {**options.get("headers", {}), "celery_beat_task": True}
        self.app.send_task(
            entry.task, entry.args or (), entry.kwargs or {}, tarry_repeat=rule, tarry_key=key, **options
        )


def rule_of(entry: Any, zone: str) -> Repeat | None:
    """Return the rule of an entry; None: the broker cannot repeat it."""
    if any(isinstance(each, beat.BeatLazyFunc) for each in (*_values(entry.args), *_values(entry.kwargs))):
        return None  # its arguments are computed each time
    if any(entry.options.get(name) is not None for name in ("eta", "countdown")):
        return None  # each occurrence is sent at one time and due at another
    try:
        if type(entry.schedule) is crontab:
            return Repeat.cron(*_cron_of(entry.schedule, zone), missed="last")
        if type(entry.schedule) is schedule and not entry.schedule.relative:
            return Repeat.every(entry.schedule.run_every, missed="last")
    except InvalidArgumentError as error:
        log.warning("beat: %s is repeated by beat itself: %s", entry.name, error)
    return None


def _values(given: Any) -> Iterable[Any]:
    if isinstance(given, dict):
        return given.values()
    return given if isinstance(given, (list, tuple)) else (given,)


def _cron_of(given: Any, zone: str) -> tuple[str, str]:
    """Return a crontab as a cron expression, and its zone.

    Raises:
        InvalidArgumentError: it says both a day of the month and of the week. Celery wants both, cron either.
    """
    day, weekday = str(given._orig_day_of_month), str(given._orig_day_of_week)  # noqa: SLF001
    if day != "*" and weekday != "*":
        raise InvalidArgumentError(
            f"it names days of the month ({day}) and of the week ({weekday}); allowed: one of them"
        )
    fields = (given._orig_minute, given._orig_hour, day, given._orig_month_of_year, weekday)  # noqa: SLF001
    return " ".join(_field(each) for each in fields), str(given.tz or zone)


def _field(given: Any) -> str:
    text = ",".join(map(str, sorted(given))) if isinstance(given, (set, frozenset, list, tuple)) else str(given)
    return text.replace(" ", "")


def _digest_of(entry: Any, rule: Repeat) -> str:
    said = [entry.task, entry.args, entry.kwargs, entry.options, str(rule)]
    return hashlib.sha256(json.dumps(said, default=repr, sort_keys=True).encode()).hexdigest()


def _first_of(client: Client, rule: Repeat, topic: str | None, key: str) -> datetime | None:
    """Return when the task of an interval comes first; None: the rule says it.

    As with beat: when the interval has passed, or when it would have come without the change. So nothing comes because
    a beat was started, and two that start at once double nothing.
    """
    if rule.every_ms is None:
        return None
    first = datetime.now(UTC) + timedelta(milliseconds=rule.every_ms)
    pending = None if topic is None else client.find_key(topic, key)
    return first if pending is None else min(first, datetime.fromtimestamp(pending.due_ms / 1000, UTC))


def _topic_with(client: Client, group: str, key: str, before: str | None) -> str:
    """Return the topic that an entry was routed to now: another one than ``before``, if it is in two.

    Raises:
        NotFoundError: it is in none: somebody has cancelled it meanwhile.
    """
    found = topics_with(client, task_topics(client, group), key)
    if not found:
        raise NotFoundError(f"the series of {key} is in no topic of group {group!r}: it was cancelled meanwhile")
    return min(found, key=lambda topic: topic == before)


def topics_with(client: Client, topics: Iterable[str], key: str) -> list[str]:
    """Return those of the topics where a series is pending under a key."""
    topics = list(topics)
    for turn in range(LOOKS):
        # While an occurrence is handed on, which takes a disk's write, the next one is not pending yet.
        time.sleep(LOOK_S if turn else 0)
        if found := [topic for topic in topics if client.find_key(topic, key) is not None]:
            return found
    return []


def _record_key(app_name: str) -> str:
    return f"beat:{app_name}"


def _recorded(client: Client, app_name: str) -> dict[str, dict[str, str]]:
    if not client.has_topic(RECORDS):
        return {}
    page = client.list_pending(topic=RECORDS, key=_record_key(app_name), limit=1)
    places: dict[str, dict[str, str]] = {}
    for record in page.rows.to_pylist():
        places = json.loads(record["body"])
    return places
