"""Counts of accepted, cancelled and fired messages, of very many topics.

A file has the counts of one moment; the checkpoint has only those that changed since. Format: ``docs/formats.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tarry.base.errors import CorruptError
from tarry.log.files import Files
from tarry.log.json_file import read_json, write_json

FIELDS = ("accepted", "cancelled", "offsets")
VERSION = 1
CHANGES_MAX = 1_000
"""Most counts that a checkpoint may have beside the file; a very large file: an eighth of its counts."""
_PART = 8

Counts = dict[str, dict[str, int]]
"""A number for each topic, by the field of the checkpoint."""


def path_of(directory: Path, number: int) -> Path:
    """Return the path of the file of that number."""
    return directory / f"topics-{number}.json"


class TopicCounts:
    """The file on disk that the last checkpoint names; ``number`` is None where it names none."""

    def __init__(self, directory: Path, number: int | None = None) -> None:
        """Read the file of that number.

        Raises:
            CorruptError: the file of that number is missing or damaged.
        """
        self.number = number
        self._directory = directory
        self._counts: Counts = {name: {} for name in FIELDS}
        if number is not None:
            path = path_of(directory, number)
            found = read_json(path, (VERSION,))
            if found is None:
                raise CorruptError(f"{path} is missing: the checkpoint names it")
            if not all(isinstance(found.get(name), dict) for name in FIELDS):
                raise CorruptError(f"{path} is damaged: it does not have {' and '.join(FIELDS)} by topic")
            self._counts = {name: found[name] for name in FIELDS}

    def with_changes(self, changes: Mapping[str, Mapping[str, int | None]]) -> Counts:
        """Return the file's counts, updated by those of a checkpoint; None in these: the topic was forgotten."""
        return {
            name: {t: n for t, n in {**self._counts[name], **changes.get(name, {})}.items() if n is not None}
            for name in FIELDS
        }

    def changes(self, files: Files, now: Counts) -> dict[str, dict[str, int | None]]:
        """Return the counts that a checkpoint must have beside the file; too many make a new file."""
        changes = {name: _difference(self._counts[name], now[name]) for name in FIELDS}
        held = sum(map(len, self._counts.values()))
        if sum(map(len, changes.values())) <= max(CHANGES_MAX, held // _PART):
            return changes
        # Durable before the checkpoint that names it; until then the former one is there.
        number = 1 if self.number is None else self.number + 1
        write_json(files, path_of(self._directory, number), VERSION, now)
        self.number = number
        self._counts = {name: dict(counts) for name, counts in now.items()}
        return {name: {} for name in FIELDS}

    def remove_others(self, files: Files) -> None:
        """Delete what the checkpoint on disk does not name."""
        for path in self._directory.glob("topics-*.json"):
            if self.number is None or path != path_of(self._directory, self.number):
                files.remove(path)


def _difference(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int | None]:
    changes: dict[str, Any] = {topic: n for topic, n in now.items() if before.get(topic) != n}
    changes.update((topic, None) for topic in before.keys() - now.keys())
    return changes
