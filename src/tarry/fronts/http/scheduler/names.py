"""Names and ARNs of schedules and of groups of them."""

from __future__ import annotations

import re

from tarry.fronts.http.scheduler.errors import invalid
from tarry.fronts.http.sqs.names import ACCOUNT
from tarry.fronts.http.sqs.scheduled import OCCURRENCES

DEFAULT = "default"
"""The group that is always there."""
TOPIC = "tarry.schedules"
"""The topic of definitions."""

_NAME = re.compile(r"[-0-9a-zA-Z_.]{1,64}")
_GROUP_ARN = re.compile(r"arn:aws[a-z-]*:scheduler:[-a-z0-9]+:[0-9]{12}:schedule-group/([-0-9a-zA-Z_.]{1,64})")


def check_name(name: object, field: str = "Name") -> str:
    """Return the name of a schedule or of a group.

    Raises:
        SchedulerError: it is none.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(f"{field} is {name!r:.80}; allowed: 1 to 64 of 0-9 a-z A-Z - _ .")
    return name


def schedule_arn(group: str, name: str, region: str) -> str:
    """Return the ARN of a schedule."""
    return f"arn:aws:scheduler:{region}:{ACCOUNT}:schedule/{group}/{name}"


def group_arn(name: str, region: str) -> str:
    """Return the ARN of a group."""
    return f"arn:aws:scheduler:{region}:{ACCOUNT}:schedule-group/{name}"


def group_in(arn: str) -> str:
    """Return the name of the group with an ARN.

    Raises:
        SchedulerError: it is no ARN of a group.
    """
    found = _GROUP_ARN.fullmatch(arn)
    if found is None:
        raise invalid(f"ResourceArn is {arn!r:.200}; allowed: that of a schedule group, since schedules have no tags")
    return found[1]


def group_resource(name: str) -> str:
    """Return the name by which rights on a group are granted, as if it were a topic."""
    return f"{OCCURRENCES}{name}"


def definition_key(group: str, name: str) -> str:
    """Return the key of a schedule's definition in :data:`TOPIC`."""
    return f"{group}/{name}"


def occurrence_key(group: str, name: str) -> str:
    """Return the key of a schedule's next occurrence in the topic of its queue."""
    return f"{OCCURRENCES}{group}/{name}"
