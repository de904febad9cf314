"""Groups and topics: settings, states, pausing, seeking. Each change is durable when it returns.

All of them raise NotFoundError where there is no such group, and InvalidArgumentError where a value is not allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Annotated, Any, Unpack
from typing import get_type_hints as hints_of

from annotated_types import Ge, Le

from tarry.api.group_info import ConsumerInfo, GroupInfo, TopicInfo
from tarry.api.needs import Listed, OnTopic, Right
from tarry.api.operation import NOTHING, Action, FirstThatFits, Int64, Operation, data, many, named
from tarry.api.settings import GroupOptions, Start, TopicOptions
from tarry.base.delay import datetime_ms

CONSUMERS_MAX = 1000
"""Most consumers in one answer."""


def _options(kind: Any) -> dict[str, tuple[Any, Any]]:
    """Return the settings as fields of a request, each of which may be left out.

    Ranges are checked where the settings are defined.
    """
    return {name: (Int64 | None if hint == int | None else hint, None) for name, hint in hints_of(kind).items()}


@dataclass(frozen=True, slots=True)
class SetGroup(Operation[GroupInfo]):
    """A group's settings that are to be changed, by name; see :meth:`of`."""

    wire = Action("set-group", "settings of a group, which is made if it is new", data(GroupInfo))
    needs = OnTopic(Right.MANAGE)
    topic: str
    group: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    start: Start | None = None

    @classmethod
    def of(cls, topic: str, group: str, *, start: Start | None = None, **settings: Unpack[GroupOptions]) -> SetGroup:
        """Change settings of a group (None: as it is), durably. A group that is new is made.

        Args:
            start: "earliest" or "latest", where a new group begins; nothing for one that there is.
            settings: see :class:`tarry.api.groups.GroupFields`, and ``docs/delivery-groups.md``.

        Raises:
            InvalidArgumentError: a value is not allowed. DiskFullError: nothing was changed.
        """
        return cls(topic, group, _given(GroupOptions, settings), start)

    def to_wire(self) -> dict[str, Any]:
        values = {"topic": self.topic, "group": self.group, **self.settings}
        return values if self.start is None else values | {"start": self.start}

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> SetGroup:
        return cls.of(**values)

    @classmethod
    def wire_fields(cls) -> dict[str, tuple[Any, Any]]:
        return {"topic": (str, ...), "group": (str, ...), **_options(GroupOptions), "start": (Start | None, None)}


@dataclass(frozen=True, slots=True)
class SetTopic(Operation[TopicInfo]):
    """A topic's settings that are to be changed, by name; see :meth:`of`."""

    wire = Action("set-topic", "a topic's settings", data(TopicInfo))
    needs = OnTopic(Right.MANAGE)
    topic: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, topic: str, **settings: Unpack[TopicOptions]) -> SetTopic:
        """Change settings of a topic (None: as it is), durably. A topic that is new is made.

        Args:
            settings: see :class:`tarry.api.groups.TopicSettings`.
        """
        return cls(topic, _given(TopicOptions, settings))

    def to_wire(self) -> dict[str, Any]:
        return {"topic": self.topic, **self.settings}

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> SetTopic:
        return cls.of(**values)

    @classmethod
    def wire_fields(cls) -> dict[str, tuple[Any, Any]]:
        return {"topic": (str, ...), **_options(TopicOptions)}


def _given(kind: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    unknown = settings.keys() - hints_of(kind).keys()
    if unknown:
        # As of any function that has no such argument.
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}; allowed: {', '.join(hints_of(kind))}")
    return {name: value for name, value in settings.items() if value is not None}


@dataclass(frozen=True, slots=True)
class GetGroup(Operation[GroupInfo]):
    """A group's settings, and where its messages are."""

    wire = Action("group-info", "a group's settings, and where its messages are", data(GroupInfo))
    needs = OnTopic(Right.LOOK)
    topic: str
    group: str


@dataclass(frozen=True, slots=True)
class ListGroups(Operation[list[GroupInfo]]):
    """List all groups, of one topic or of every one, by name."""

    wire = Action("groups", "all groups, or those of a topic", many(data(GroupInfo)))
    needs = Listed(lambda groups, may: [each for each in groups if may(each.topic, each.group)])
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class ListConsumers(Operation[list[ConsumerInfo]]):
    """List the consumers of a group, and what each holds: those that hold most first, up to ``limit``.

    Consumers behind a gateway are those as which its workers ask for them.

    Raises:
        NotFoundError: the topic has no such group.
    """

    wire = Action("consumers", "the consumers of a group, and what each holds", many(data(ConsumerInfo)))
    needs = OnTopic(Right.LOOK)
    topic: str
    group: str
    _: KW_ONLY
    limit: Annotated[int, Ge(1), Le(CONSUMERS_MAX)] = 100


@dataclass(frozen=True, slots=True)
class DeleteGroup(Operation[None]):
    """Forget a group; its consumers get nothing more, and it holds up no deletion. Its dead letters stay."""

    wire = Action("delete-group", "forget a group; its dead letters stay", NOTHING)
    needs = OnTopic(Right.MANAGE)
    topic: str
    group: str


@dataclass(frozen=True, slots=True)
class PauseGroup(Operation[None]):
    """Hand out nothing to a group, until it is resumed. What consumers hold can be settled."""

    wire = Action("pause", "have a group hand out nothing", NOTHING)
    needs = OnTopic(Right.MANAGE)
    topic: str
    group: str


@dataclass(frozen=True, slots=True)
class ResumeGroup(Operation[None]):
    """Hand out messages to a group again, after :class:`PauseGroup`."""

    wire = Action("resume", "have a group hand out again", NOTHING)
    needs = OnTopic(Right.MANAGE)
    topic: str
    group: str


_Place = Annotated[Int64 | str, FirstThatFits()]  # of a URL, too, digits are a time


@dataclass(frozen=True, slots=True)
class Seek(Operation[int]):
    """Move a group to the first message due at ``to`` or later, and deliver from there.

    ``to`` is an aware datetime, UTC milliseconds, the "earliest" that is kept, or the "latest". Messages before it are
    skipped, messages behind it are delivered again; leases from before are stale.

    Returns:
        The number of ready messages that are ahead of the group then.
    """

    wire = Action("seek", "have a group go on from a time", named("ahead"))
    needs = OnTopic(Right.MANAGE)
    topic: str
    group: str
    to: datetime | int | str

    def __post_init__(self) -> None:
        if isinstance(self.to, datetime):
            object.__setattr__(self, "to", datetime_ms(self.to))

    @classmethod
    def wire_fields(cls) -> dict[str, tuple[Any, Any]]:
        return {"topic": (str, ...), "group": (str, ...), "to": (_Place, ...)}


@dataclass(frozen=True, slots=True)
class GetTopic(Operation[TopicInfo]):
    """A topic's settings: what becomes of its late messages, and order."""

    wire = Action("topic-info", "what becomes of a topic's late messages", data(TopicInfo))
    needs = OnTopic(Right.LOOK)
    topic: str


@dataclass(frozen=True, slots=True)
class HasTopic(Operation[bool]):
    """Return whether a topic exists: it was declared, or has messages, groups or settings."""

    wire = Action("has-topic", "whether there is such a topic", named("exists"))
    needs = OnTopic(Right.LOOK)
    topic: str
