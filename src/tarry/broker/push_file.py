"""The durable push subscriptions: one small file, replaced as a whole. Format: ``docs/formats.md``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tarry.api.push import PushSubscription
from tarry.base.errors import CorruptError, DiskFullError, InvalidArgumentError
from tarry.log.files import TRY_AGAIN, Files
from tarry.log.json_file import read_json, write_json

VERSION = 1
FILE = "push.json"
MODE = 0o600
"""It has secrets in it."""


class PushFile:
    """Not thread-safe: one owner. A change is durable when the call returns, or nothing was changed."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / FILE

    def read(self) -> dict[str, PushSubscription]:
        """What is on disk, by name.

        Raises:
            CorruptError: it is damaged, or of another version.
        """
        fields = read_json(self._path, [VERSION])
        if fields is None:
            return {}
        try:
            found = [PushSubscription(**{**s, "secrets": tuple(s["secrets"])}) for s in fields["subscriptions"]]
        except (ValueError, KeyError, AttributeError, TypeError, InvalidArgumentError) as error:
            raise CorruptError(f"{self._path} is damaged: {error}") from error
        return {subscription.name: subscription for subscription in found}

    def write(self, subscriptions: Mapping[str, PushSubscription]) -> None:
        """Replace all of them.

        Raises:
            DiskFullError: nothing was changed.
        """
        plain = [{**asdict(s), "secrets": list(s.secrets)} for s in subscriptions.values()]
        try:
            self._make_private()
            write_json(self._files, self._path, VERSION, {"subscriptions": plain})
        except OSError as error:
            if error.errno not in TRY_AGAIN:
                raise
            raise DiskFullError(
                f"{self._path} cannot be written now ({error.strerror}): nothing was changed; try again later"
            ) from error

    def _make_private(self) -> None:
        """Make the file that will take the place of this one, before there is anything in it: a file that is there
        keeps its mode when it is written.
        """
        temporary = self._path.with_name(self._path.name + ".new")
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, MODE))
        temporary.chmod(MODE)
