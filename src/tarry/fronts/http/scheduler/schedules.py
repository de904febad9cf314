"""Creating, updating, getting, deleting and listing schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

from tarry.api.local import LocalBroker
from tarry.api.needs import Right
from tarry.api.operations import CancelKeys, ListPending
from tarry.api.outcome import Outcome
from tarry.base.errors import InvalidArgumentError
from tarry.base.event_loop import answer_future
from tarry.fronts.http.scheduler.definition import (
    Definition,
    check_end,
    check_start,
    checked,
    read_definition,
    shown,
    summary,
)
from tarry.fronts.http.scheduler.errors import conflict, invalid, not_found
from tarry.fronts.http.scheduler.group_table import ScheduleGroupTable
from tarry.fronts.http.scheduler.names import (
    DEFAULT,
    TOPIC,
    check_name,
    definition_key,
    occurrence_key,
    schedule_arn,
)
from tarry.fronts.http.scheduler.occurrences import (
    Unsent,
    blank_row,
    definition_row,
    looked_from_ms,
    occurrence_row,
    unsent_of,
)
from tarry.fronts.http.scheduler.repeated import asked_of
from tarry.fronts.http.scheduler.request import SchedulerRequest
from tarry.fronts.http.services import HttpServices
from tarry.fronts.http.sqs.queue_attributes import Queue
from tarry.fronts.http.sqs.queue_table import QueueTable
from tarry.message.accepted import Accepted
from tarry.message.row_columns import to_batch
from tarry.message.rows import BODY, Row

WRITTEN = frozenset(("scheduled", "replaced"))
"""Outcomes of a row that is there now."""
LOOKS_MAX = 20
"""Most pages of the broker's for one page of schedules; then it has fewer, and a token for more."""


class Schedules:
    """On the event loop's thread. What these answer is durable."""

    def __init__(self, services: HttpServices, queues: QueueTable, groups: ScheduleGroupTable) -> None:
        self._services = services
        self._broker = cast(LocalBroker, services.broker)
        self._queues = queues
        self._groups = groups
        self._delay_ms_max = services.broker.config.delay_ms_max
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Each schedule is changed by one request at a time: a change is made of what was read before."""

    async def create(self, request: SchedulerRequest) -> dict[str, Any]:
        """Make a schedule, unless there is one of that name."""
        name, group = self._named(request, request.fields.get("GroupName"))
        self._groups.check_active(group)
        now_ms = self._now_ms()
        given, token = checked(request.fields), request.token()
        anchor_ms, asked = given.get("StartDate", now_ms), asked_of(given)
        definition = Definition(group, name, given, request.region, now_ms, now_ms, anchor_ms, token, asked)
        request.check(Right.PRODUCE, definition.queue)
        async with self._lock(group, name):
            former = await self._find(group, name)
            if former is None or not definition.repeats(former):
                check_start(given, now_ms)
                check_end(given, now_ms)
                queue = self._target(request, definition)
                if former is not None:
                    raise conflict(f"Schedule {name} already exists.")
                await self._put(request, definition, queue)
                await self._check_group(definition)
        return {"ScheduleArn": schedule_arn(group, name, request.region)}

    async def update(self, request: SchedulerRequest) -> dict[str, Any]:
        """Replace all that a schedule says; what is not given has its default again, as with AWS."""
        name, group = self._named(request, request.fields.get("GroupName"))
        self._groups.check_active(group)
        now_ms = self._now_ms()
        given = checked(request.fields)
        check_end(given, now_ms)
        async with self._lock(group, name):
            former = await self._found(group, name)
            request.check(Right.PRODUCE, former.queue)
            anchor_ms = _anchor_ms(former, given, now_ms)
            creation = former.token, former.asked
            definition = Definition(group, name, given, request.region, former.created_ms, now_ms, anchor_ms, *creation)
            await self._put(request, definition, self._target(request, definition), former)
            await self._check_group(definition)
        return {"ScheduleArn": schedule_arn(group, name, request.region)}

    async def get(self, request: SchedulerRequest) -> dict[str, Any]:
        """Return all that a schedule says."""
        name, group = self._named(request, request.asked("groupName"))
        definition = await self._found(group, name)
        request.check(Right.BROWSE, definition.queue)
        return shown(definition, request.region)

    async def delete(self, request: SchedulerRequest) -> dict[str, Any]:
        """Delete a schedule. What of it is in its queue already stays there."""
        name, group = self._named(request, request.asked("groupName"))
        async with self._lock(group, name):
            definition = await self._found(group, name)
            request.check(Right.PRODUCE, definition.queue)
            await self._remove(definition)
        return {}

    async def page(self, request: SchedulerRequest) -> dict[str, Any]:
        """Return a page of the schedules whose queues the caller may look at."""
        group, state, prefix, limit = request.asked("ScheduleGroup"), request.asked("State"), *_bounds(request)
        if group is not None:
            self._groups.check(check_name(group, "ScheduleGroup"))
        if state not in (None, "ENABLED", "DISABLED"):
            raise invalid(f"State is {state!r:.40}; allowed: ENABLED, DISABLED")
        cursor = request.asked("NextToken")
        found: list[dict[str, Any]] = []
        for _ in range(LOOKS_MAX):
            definitions, cursor = await self._some(limit - len(found), cursor)
            found += [
                summary(each, request.region)
                for each in definitions
                if (group in (None, each.group) and state in (None, each.given["State"]))
                and each.name.startswith(prefix)
                and request.sees(each.queue)
            ]
            if cursor is None or len(found) >= limit:
                break
        return {"Schedules": found, **({} if cursor is None else {"NextToken": cursor})}

    async def delete_all(self, group: str) -> None:
        """Delete the schedules of a group that takes no more."""
        cursor = None
        while True:
            definitions, cursor = await self._some(100, cursor)
            for each in definitions:
                if each.group == group:
                    async with self._lock(group, each.name):
                        await self._remove(each)
            if cursor is None:
                return

    # ------------------------------------------------------------------------------------------------------------------

    def _named(self, request: SchedulerRequest, group: object) -> tuple[str, str]:
        name, group = check_name(request.label), check_name(DEFAULT if group is None else group, "GroupName")
        self._groups.check(group)
        return name, group

    def _target(self, request: SchedulerRequest, definition: Definition) -> Queue:
        request.check(Right.PRODUCE, definition.queue)
        queue = self._queues.get(definition.queue)
        if queue is None:
            raise invalid(
                f"Target.Arn names the queue {definition.queue}, which does not exist; allowed: one that does"
            )
        return queue

    def _lock(self, group: str, name: str) -> asyncio.Lock:
        return self._locks.setdefault(definition_key(group, name), asyncio.Lock())

    def _now_ms(self) -> int:
        return self._broker.clock.now_ms()

    async def _put(
        self, request: SchedulerRequest, definition: Definition, queue: Queue, former: Definition | None = None
    ) -> None:
        """Write a definition with its occurrence, and take away the former occurrence where it has none now."""
        rows, stale = await self._rows(definition, queue, former)
        await request.principal.in_turn()
        request.principal.charge(1, len(rows[0][BODY]), (queue.name,))
        # An occurrence that is sent while this is written stays what it was, and those after it are changed.
        while not WRITTEN.issuperset((await self._submit(rows)).outcomes):
            rows, stale = await self._rows(definition, queue, former)
        if stale is not None:
            await self._cancel(stale, occurrence_key(definition.group, definition.name))

    async def _rows(
        self, definition: Definition, queue: Queue, former: Definition | None
    ) -> tuple[list[Row], str | None]:
        """Return the rows of a schedule, and the topic in which its former occurrence is to be cancelled."""
        now_ms, delay_ms_max = self._now_ms(), self._delay_ms_max
        rows = [definition_row(definition, now_ms, delay_ms_max)]
        stale = None if former is None else former.queue
        unsent = None if former is None else await self._unsent(former)
        from_ms = looked_from_ms(definition, former, unsent, now_ms)
        if definition.is_enabled and from_ms is not None:
            replaced = unsent if stale == queue.name else None
            row = occurrence_row(definition, queue, now_ms, from_ms, delay_ms_max, replaced)
            if row is not None:
                rows.append(row)
                stale = None if stale == queue.name else stale
        if stale is not None:
            rows.append(blank_row(stale, occurrence_key(definition.group, definition.name), now_ms, delay_ms_max))
        return rows, stale

    async def _remove(self, definition: Definition) -> None:
        now_ms, ahead_ms = self._now_ms(), self._delay_ms_max
        places = (
            (TOPIC, definition_key(definition.group, definition.name)),
            (definition.queue, occurrence_key(definition.group, definition.name)),
        )
        await self._submit([blank_row(topic, key, now_ms, ahead_ms) for topic, key in places])
        for topic, key in places:
            await self._cancel(topic, key)

    async def _check_group(self, definition: Definition) -> None:
        """Take a schedule away again whose group was deleted meanwhile: its deletion may not have seen it."""
        if not self._groups.is_active(definition.group):
            await self._remove(definition)
            raise not_found("Schedule group", definition.group)

    async def _submit(self, rows: Sequence[Row]) -> Accepted:
        future: asyncio.Future[Accepted]
        future, on_result = answer_future(self._services.loop)
        self._broker.submit(to_batch(rows), on_result, internal=True)
        return await future

    async def _cancel(self, topic: str, key: str) -> None:
        await self._services.run(self._broker.call, CancelKeys(topic, [key]))

    async def _find(self, group: str, name: str) -> Definition | None:
        row = await self._services.run(self._broker.find_keyed, TOPIC, definition_key(group, name))
        body = b"" if isinstance(row, Outcome) else row.column("body")[0].as_py()
        return read_definition(body) if body else None

    async def _unsent(self, definition: Definition) -> Unsent | None:
        """Return a schedule's next occurrence; None: there is none, or it was sent."""
        key = occurrence_key(definition.group, definition.name)
        row = await self._services.run(self._broker.find_keyed, definition.queue, key)
        return None if isinstance(row, Outcome) or not row.column("body")[0].as_py() else unsent_of(row)

    async def _found(self, group: str, name: str) -> Definition:
        definition = await self._find(group, name)
        if definition is None:
            raise not_found("Schedule", name)
        return definition

    async def _some(self, limit: int, cursor: str | None) -> tuple[list[Definition], str | None]:
        """Return some schedules, and a cursor for those after them; those that are being deleted have no body."""
        asked = ListPending(topic=TOPIC, limit=limit, cursor=cursor)
        try:
            page = await self._services.run(self._broker.list_whole, asked)
        except InvalidArgumentError:
            raise invalid(f"NextToken is {cursor!r:.40}; allowed: one that ListSchedules has returned") from None
        bodies: list[bytes] = page.rows.column("body").to_pylist()
        return [read_definition(body) for body in bodies if body], page.cursor


def _bounds(request: SchedulerRequest) -> tuple[str, int]:
    return request.prefix(), request.limit()


def _anchor_ms(former: Definition, given: dict[str, Any], now_ms: int) -> int:
    """Return from when intervals are counted: as before, unless something about them has changed."""
    same = all(former.given.get(name) == given.get(name) for name in ("ScheduleExpression", "StartDate"))
    return former.anchor_ms if same else int(given.get("StartDate", now_ms))
