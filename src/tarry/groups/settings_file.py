"""Durable settings of groups and topics: one small file, replaced as a whole.

Format: ``docs/formats.md``.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tarry.api.groups import GroupSettings, TopicSettings, not_default
from tarry.base.errors import CorruptError, InvalidArgumentError
from tarry.log.files import Files
from tarry.log.json_file import change_json, read_json

VERSION = 1
FILE = "policies.json"

GroupKey = tuple[str, str]
"""Topic and group."""


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
        self._groups: dict[GroupKey, GroupSettings] = {}
        self._topics: dict[str, TopicSettings] = {}
        self._read()

    @property
    def topics(self) -> dict[str, TopicSettings]:
        """Return the topics that have settings."""
        return dict(self._topics)

    def topic(self, topic: str) -> TopicSettings | None:
        """Return a topic's settings; None if it has nothing but defaults."""
        return self._topics.get(topic)

    def group(self, topic: str, group: str) -> GroupSettings:
        """Return a group's settings."""
        return self._groups.get((topic, group)) or GroupSettings.of(topic)

    def set_group(self, topic: str, group: str, settings: GroupSettings | None) -> None:
        """Set a group's settings; None: it has none any more.

        Raises:
            DiskFullError: nothing was changed.
        """
        with self._lock:
            groups = dict(self._groups)
            if settings is None or settings == GroupSettings.of(topic):
                if groups.pop((topic, group), None) is None:
                    return
            else:
                groups[topic, group] = settings
            self._write(groups, self._topics)
            self._groups = groups

    def set_topic(self, topic: str, settings: TopicSettings) -> None:
        """Set a topic's settings.

        Raises:
            DiskFullError: nothing was changed.
        """
        with self._lock:
            topics = {**self._topics, topic: settings}
            if settings == TopicSettings():
                del topics[topic]
            self._write(self._groups, topics)
            self._topics = topics

    def _write(self, groups: dict[GroupKey, GroupSettings], topics: dict[str, TopicSettings]) -> None:
        fields: dict[str, Any] = {
            "topics": {t: not_default(s, TopicSettings()) for t, s in topics.items()},
            "groups": [[t, g, not_default(s, GroupSettings.of(t))] for (t, g), s in groups.items()],
        }
        change_json(self._files, self._path, VERSION, fields)

    def _read(self) -> None:
        fields = read_json(self._path, [VERSION])
        if fields is None:
            return
        try:
            self._topics = {t: TopicSettings().changed(**s) for t, s in fields["topics"].items()}
            self._groups = {(t, g): GroupSettings.of(t).changed(**s) for t, g, s in fields["groups"]}
        except (ValueError, KeyError, AttributeError, TypeError, InvalidArgumentError) as error:
            raise CorruptError(f"{self._path} is damaged: {error}") from error
