"""Durable settings of groups and topics: one small file, replaced as a whole.

Format: ``docs/formats.md``.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tarry.api.groups import GroupSettings, TopicSettings, not_default
from tarry.base.errors import CorruptError, InvalidArgumentError
from tarry.log.files import Files
from tarry.log.json_file import change_canonical, read_json

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")

VERSION = 1
FILE = "policies.json"

GroupKey = tuple[str, str]
"""Topic and group."""


@dataclass(slots=True)
class _Contents:
    """Content of the file, with the text of each entry: a change makes that of its own entry alone."""

    groups: dict[GroupKey, GroupSettings] = field(default_factory=dict)
    group_texts: dict[GroupKey, str] = field(default_factory=dict)
    topics: dict[str, TopicSettings] = field(default_factory=dict)
    topic_texts: dict[str, str] = field(default_factory=dict)

    def copy(self) -> _Contents:
        return _Contents(self.groups.copy(), self.group_texts.copy(), self.topics.copy(), self.topic_texts.copy())

    def canonical_parts(self) -> list[str]:
        """Return the file's fields as JSON with sorted keys, in parts."""
        topics = [self.topic_texts[topic] for topic in sorted(self.topic_texts)]
        ends = f'"version": {VERSION}}}'
        return ['{"groups": [', ", ".join(self.group_texts.values()), '], "topics": {', ", ".join(topics), "}, ", ends]


_Change = Callable[[_Contents], bool]


@dataclass(slots=True)
class _Wanted:
    """A change that a thread waits for. It returns whether there is anything to write."""

    change: _Change
    is_done: bool = False
    error: BaseException | None = None


class SettingsFile:
    """Settings that differ from the defaults.

    A change is durable when the call returns, or nothing was changed.
    """

    def __init__(self, files: Files, directory: Path) -> None:
        """Read what is on disk.

        Raises:
            CorruptError: it is damaged, or of another version.
        """
        self._files = files
        self._path = directory / FILE
        self._lock = threading.Lock()
        self._wanted: deque[_Wanted] = deque()
        self._contents = _Contents()
        self._read()

    @property
    def topics(self) -> dict[str, TopicSettings]:
        """Return the topics that have settings."""
        return dict(self._contents.topics)

    def topic(self, topic: str) -> TopicSettings | None:
        """Return a topic's settings; None if it has nothing but defaults."""
        return self._contents.topics.get(topic)

    def group(self, topic: str, group: str) -> GroupSettings:
        """Return a group's settings."""
        return self._contents.groups.get((topic, group)) or GroupSettings.of(topic)

    def set_group(self, topic: str, group: str, settings: GroupSettings | None) -> None:
        """Set a group's settings; None: it has none any more.

        Raises:
            DiskFullError, OverloadedError: nothing was changed.
        """
        default = GroupSettings.of(topic)
        fields = {} if settings is None else not_default(settings, default)
        text = _text([topic, group, fields]) if fields else None

        def change(draft: _Contents) -> bool:
            return _put(draft.groups, draft.group_texts, (topic, group), settings, text)

        self._change(change)

    def set_topic(self, topic: str, settings: TopicSettings) -> None:
        """Set a topic's settings.

        Raises:
            DiskFullError, OverloadedError: nothing was changed.
        """
        fields = not_default(settings, TopicSettings())
        text = f"{_text(topic)}: {_text(fields)}" if fields else None

        def change(draft: _Contents) -> bool:
            return _put(draft.topics, draft.topic_texts, topic, settings, text)

        self._change(change)

    def _change(self, change: _Change) -> None:
        """Carry a change out, together with all that others want meanwhile: one write is for all of them."""
        wanted = _Wanted(change)
        self._wanted.append(wanted)
        with self._lock:
            if not wanted.is_done:
                self._carry_out()
        if wanted.error is not None:
            raise wanted.error

    def _carry_out(self) -> None:
        """Carry out all that is wanted by now. With the lock held."""
        together = [self._wanted.popleft() for _ in range(len(self._wanted))]
        try:
            draft = self._contents.copy()
            are_changes = [each.change(draft) for each in together]
            if any(are_changes):
                change_canonical(self._files, self._path, draft.canonical_parts())
            self._contents = draft
        except BaseException as error:  # noqa: BLE001  told to whoever waits
            for each in together:
                each.error = error
        finally:
            for each in together:
                each.is_done = True

    def _read(self) -> None:
        fields = read_json(self._path, [VERSION])
        if fields is None:
            return
        contents = self._contents
        try:
            for topic, stored in fields["topics"].items():
                contents.topics[topic] = TopicSettings().changed(**stored)
                contents.topic_texts[topic] = f"{_text(topic)}: {_text(stored)}"
            for topic, group, stored in fields["groups"]:
                contents.groups[topic, group] = GroupSettings.of(topic).changed(**stored)
                contents.group_texts[topic, group] = _text([topic, group, stored])
        except (ValueError, KeyError, AttributeError, TypeError, InvalidArgumentError) as error:
            raise CorruptError(f"{self._path} is damaged: {error}") from error


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _put(values: dict[K, S], texts: dict[K, str], key: K, value: S | None, text: str | None) -> bool:
    """Put a value and its text under a key, or take it away; return whether that is a change."""
    if texts.get(key) == text:
        return False
    if value is None or text is None:
        del values[key], texts[key]
    else:
        values[key], texts[key] = value, text
    return True
