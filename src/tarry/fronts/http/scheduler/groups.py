"""Groups of schedules, and their tags. A schedule has none of its own, as with AWS."""

from __future__ import annotations

from typing import Any

from tarry.api.needs import Right
from tarry.fronts.http.scheduler.errors import invalid
from tarry.fronts.http.scheduler.group_table import ScheduleGroup, ScheduleGroupTable
from tarry.fronts.http.scheduler.names import DEFAULT, check_name, group_arn, group_in, group_resource
from tarry.fronts.http.scheduler.request import SchedulerRequest
from tarry.fronts.http.scheduler.schedules import Schedules


class Groups:
    """On the event loop's thread."""

    def __init__(self, table: ScheduleGroupTable, schedules: Schedules) -> None:
        self._table = table
        self._schedules = schedules

    async def create(self, request: SchedulerRequest) -> dict[str, Any]:
        """Make a group, unless there is one of that name."""
        name = check_name(request.label)
        request.check(Right.MANAGE, group_resource(name))
        await self._table.create(name, request.tags(), request.token())
        return {"ScheduleGroupArn": group_arn(name, request.region)}

    async def get(self, request: SchedulerRequest) -> dict[str, Any]:
        """Return a group."""
        name = check_name(request.label)
        request.check(Right.LOOK, group_resource(name))
        return _shown(self._table.check(name), request.region)

    async def delete(self, request: SchedulerRequest) -> dict[str, Any]:
        """Delete a group and all its schedules.

        If the broker ends meanwhile, the group takes no schedules any more, and the same request goes on.
        """
        name = check_name(request.label)
        request.check(Right.MANAGE, group_resource(name))
        if name == DEFAULT:
            raise invalid("The default schedule group can't be deleted.")
        self._table.check(name)
        await self._table.begin_deletion(name)
        await self._schedules.delete_all(name)
        await self._table.forget(name)
        return {}

    async def page(self, request: SchedulerRequest) -> dict[str, Any]:
        """Return a page of the groups that the caller may look at, by name."""
        prefix, limit, after = request.prefix(), request.limit(), request.asked("NextToken") or ""
        found = [
            group
            for group in self._table.all()
            if group.name.startswith(prefix) and group.name > after and request.sees(group_resource(group.name))
        ]
        answer: dict[str, Any] = {"ScheduleGroups": [_shown(group, request.region) for group in found[:limit]]}
        if len(found) > limit:
            answer["NextToken"] = found[limit - 1].name
        return answer

    async def tag(self, request: SchedulerRequest) -> dict[str, Any]:
        """Set tags of a group."""
        await self._table.tag(self._managed(request), request.tags())
        return {}

    async def untag(self, request: SchedulerRequest) -> dict[str, Any]:
        """Take tags from a group."""
        await self._table.tag(self._managed(request), dict.fromkeys(request.query.get("TagKeys", ())))
        return {}

    async def tags(self, request: SchedulerRequest) -> dict[str, Any]:
        """Return the tags of a group."""
        name = group_in(request.label)
        request.check(Right.LOOK, group_resource(name))
        return {"Tags": [{"Key": key, "Value": value} for key, value in self._table.check(name).tags.items()]}

    def _managed(self, request: SchedulerRequest) -> str:
        name = group_in(request.label)
        request.check(Right.MANAGE, group_resource(name))
        self._table.check(name)
        return name


def _shown(group: ScheduleGroup, region: str) -> dict[str, Any]:
    return {
        "Arn": group_arn(group.name, region),
        "Name": group.name,
        "State": "DELETING" if group.is_going else "ACTIVE",
        "CreationDate": group.created_ms / 1000,
        "LastModificationDate": group.modified_ms / 1000,
    }
