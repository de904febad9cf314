"""The groups of schedules, with their tags: a small durable file of the front's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tarry.api.local import LocalBroker
from tarry.base.errors import CorruptError
from tarry.fronts.http.scheduler.errors import conflict, invalid, not_found
from tarry.fronts.http.scheduler.names import DEFAULT
from tarry.fronts.http.scheduler.repeated import asked_of, is_repeated
from tarry.fronts.http.scheduler.request import TAGS_MAX
from tarry.fronts.http.services import HttpServices

STATE = "scheduler-groups"
"""Name of the file; see ``docs/formats.md``."""


@dataclass(frozen=True, slots=True)
class ScheduleGroup:
    """A group of schedules."""

    name: str
    tags: Mapping[str, str]
    created_ms: int
    modified_ms: int
    is_going: bool = False
    """Its schedules are being deleted, and then it is."""
    token: str | None = None
    """The client's token of its creation."""
    asked: str | None = None
    """Digest of what its creation asked for; None: it is not known."""


class ScheduleGroupTable:
    """On the event loop's thread. A change is durable before it is seen."""

    def __init__(self, services: HttpServices, broker: LocalBroker) -> None:
        self._services = services
        self._state = broker.front_state(STATE)
        self._lock = asyncio.Lock()
        """One change at a time: each writes the whole file."""
        try:
            fields = self._state.read() or {}
        except CorruptError:  # which is reported: status and log tell of it
            fields = {}
        self._groups = {each["name"]: ScheduleGroup(**each) for each in fields.get("groups", ())}
        self._groups.setdefault(DEFAULT, ScheduleGroup(DEFAULT, {}, 0, 0))

    def all(self) -> list[ScheduleGroup]:
        """Return all groups, by name."""
        return sorted(self._groups.values(), key=lambda group: group.name)

    def check(self, name: str) -> ScheduleGroup:
        """Return a group.

        Raises:
            SchedulerError: there is none of that name.
        """
        group = self._groups.get(name)
        if group is None:
            raise not_found("Schedule group", name)
        return group

    def check_active(self, name: str) -> None:
        """Refuse a change in a group that is not there, or is being deleted.

        Raises:
            SchedulerError: it is so.
        """
        if self.check(name).is_going:
            raise conflict(f"Schedule group {name} is being deleted.")

    def is_active(self, name: str) -> bool:
        """Return whether schedules may be made in a group."""
        group = self._groups.get(name)
        return group is not None and not group.is_going

    async def create(self, name: str, tags: Mapping[str, str], token: str | None) -> ScheduleGroup:
        """Add a group.

        Raises:
            SchedulerError: there is one of that name, and not by the same request.
        """
        async with self._lock:
            asked = asked_of(tags)
            if (former := self._groups.get(name)) is not None:
                if is_repeated(former.token, former.asked, token, asked):
                    return former
                raise conflict(f"Schedule group {name} already exists.")
            now_ms = self._services.broker.clock.now_ms()
            return await self._put(ScheduleGroup(name, dict(tags), now_ms, now_ms, token=token, asked=asked))

    async def tag(self, name: str, tags: Mapping[str, str | None]) -> None:
        """Set tags; one that is None is taken away.

        Raises:
            SchedulerError: there is no such group, or it has too many then.
        """
        async with self._lock:
            group = self.check(name)
            kept = {key: value for key, value in {**group.tags, **tags}.items() if value is not None}
            if len(kept) > TAGS_MAX:
                raise invalid(f"Schedule group {name} would have {len(kept)} tags; allowed: {TAGS_MAX}")
            await self._put(replace(group, tags=kept))

    async def begin_deletion(self, name: str) -> None:
        """Let a group take no more schedules."""
        async with self._lock:
            now_ms = self._services.broker.clock.now_ms()
            await self._put(replace(self.check(name), is_going=True, modified_ms=now_ms))

    async def forget(self, name: str) -> None:
        """Forget a group, whose schedules are deleted."""
        async with self._lock:
            await self._write({key: group for key, group in self._groups.items() if key != name})

    async def _put(self, group: ScheduleGroup) -> ScheduleGroup:
        await self._write({**self._groups, group.name: group})
        return group

    async def _write(self, groups: dict[str, ScheduleGroup]) -> None:
        fields = {"groups": [_fields(group) for group in groups.values()]}
        await self._services.run(self._state.write, fields)
        self._groups = groups


def _fields(group: ScheduleGroup) -> dict[str, object]:
    return {
        "name": group.name,
        "tags": dict(group.tags),
        "created_ms": group.created_ms,
        "modified_ms": group.modified_ms,
        "is_going": group.is_going,
        "token": group.token,
        "asked": group.asked,
    }
