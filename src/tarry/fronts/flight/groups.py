"""The actions about groups, topics and dead letters; what they say is checked by the broker, but for its type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from tarry.api.wire import HANDLES_MAX
from tarry.fronts.flight.commands import Command, Int64, Natural, Start, parse
from tarry.fronts.flight.core import Core

Offsets = Annotated[list[Int64], Field(max_length=HANDLES_MAX)]


class GroupOf(Command):
    """A group."""

    topic: str
    group: str


class GroupsOf(Command):
    """The groups of a topic, or of all."""

    topic: str | None = None


class SetGroup(GroupOf):
    """What is left out stays as it is."""

    retry: str | None = None
    tries: Natural | None = None
    inflight_max: Natural | None = None
    filter: str | None = None
    ordered: bool | None = None
    paused: bool | None = None
    lease_ms: Natural | None = None
    start: Start | None = None


class Seek(GroupOf):
    """Where to go on from."""

    to: Int64 | str


class TopicOf(Command):
    """A topic."""

    topic: str


class SetTopic(TopicOf):
    """What is left out stays as it is."""

    late: str | None = None
    lateness_ms_max: Int64 | None = None
    ordered: bool | None = None
    declared: bool | None = None


class Purge(GroupOf):
    """Dead letters by their offsets; all without."""

    offsets: Offsets | None = None


class Respawn(Purge):
    """At most ``limit`` of them, at a pace."""

    limit: Natural | None = None
    per_second: float | int | None = None


class Groups:
    """For one broker."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def actions(self) -> dict[str, tuple[str, Callable[[bytes], Any]]]:
        """What each is for, and what carries it out."""
        return {
            "set-group": ("settings of a group, which is made if it is new", self._set_group),
            "group-info": ("a group's settings, and where its messages are", self._group_info),
            "groups": ("all groups, or those of a topic", self._groups),
            "delete-group": ("forget a group; its dead letters stay", self._delete_group),
            "pause": ("have a group hand out nothing", partial(self._pause, True)),
            "resume": ("have a group hand out again", partial(self._pause, False)),
            "seek": ("have a group go on from a time", self._seek),
            "set-topic": ("a topic's settings", self._set_topic),
            "topic-info": ("what becomes of a topic's late messages", self._topic_info),
            "respawn": ("schedule dead letters again, for their group", self._respawn),
            "purge": ("let go of dead letters", self._purge),
        }

    def _set_group(self, body: bytes) -> dict[str, Any]:
        return asdict(self._core.set_group(**parse(SetGroup, body).model_dump()))

    def _group_info(self, body: bytes) -> dict[str, Any]:
        command = parse(GroupOf, body)
        return asdict(self._core.group_info(command.topic, command.group))

    def _groups(self, body: bytes) -> list[dict[str, Any]]:
        return [asdict(info) for info in self._core.groups(parse(GroupsOf, body).topic)]

    def _delete_group(self, body: bytes) -> dict[str, Any]:
        command = parse(GroupOf, body)
        self._core.delete_group(command.topic, command.group)
        return {}

    def _pause(self, paused: bool, body: bytes) -> dict[str, Any]:
        command = parse(GroupOf, body)
        (self._core.pause if paused else self._core.resume)(command.topic, command.group)
        return {}

    def _seek(self, body: bytes) -> dict[str, int]:
        command = parse(Seek, body)
        return {"ahead": self._core.seek(command.topic, command.group, command.to)}

    def _set_topic(self, body: bytes) -> dict[str, Any]:
        return asdict(self._core.set_topic(**parse(SetTopic, body).model_dump()))

    def _topic_info(self, body: bytes) -> dict[str, Any]:
        return asdict(self._core.topic_info(parse(TopicOf, body).topic))

    def _respawn(self, body: bytes) -> dict[str, int]:
        command = parse(Respawn, body)
        offsets, limit, pace = _array(command.offsets), command.limit, command.per_second
        count = self._core.respawn(command.topic, command.group, offsets=offsets, limit=limit, per_second=pace)
        return {"respawned": count}

    def _purge(self, body: bytes) -> dict[str, int]:
        command = parse(Purge, body)
        return {"purged": self._core.purge(command.topic, command.group, offsets=_array(command.offsets))}


def _array(offsets: list[int] | None) -> Any:
    return None if offsets is None else np.array(offsets, np.int64)
