"""Small durable files of fronts' own state, with a checksum, replaced whole. In ``docs/formats.md``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tarry.base.errors import CorruptError
from tarry.log.files import Files, make_directory
from tarry.log.json_file import change_json, read_json

VERSION, BARE_VERSION = 2, 1
"""Version 1 had no checksum; it can still be read."""
DIRECTORY = "rocketmq"
PATTERN = "classic-*.json"


class FrontStateFile:
    """A file of a front's state: implements :class:`tarry.api.local.FrontState`. One writer at a time."""

    def __init__(self, files: Files, path: Path, report: Callable[[CorruptError], None]) -> None:
        """``report`` is told that the file is damaged: the front begins anew then, and goes on."""
        self._files = files
        self._path = path
        self._report = report

    def read(self) -> dict[str, Any] | None:
        """Return the fields written last: see :meth:`tarry.api.local.FrontState.read`."""
        try:
            return read_json(self._path, (VERSION,), bare=(BARE_VERSION,))
        except CorruptError as error:
            self._report(error)
            raise

    def write(self, fields: Mapping[str, Any]) -> None:
        """Replace the fields, durably: see :meth:`tarry.api.local.FrontState.write`."""
        make_directory(self._path.parent)
        change_json(self._files, self._path, VERSION, fields)
