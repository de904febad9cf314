"""The durable push subscriptions: one small file, replaced as a whole. Format: ``docs/formats.md``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tarry.api.push import PushSubscription
from tarry.base.errors import CorruptError, InvalidArgumentError
from tarry.log.files import Files
from tarry.log.json_file import change_json, read_json

VERSION = 1
FILE = "push.json"
MODE = 0o600
"""Mode of the file, which has secrets in it."""


class PushFile:
    """File of push subscriptions. Not thread-safe: one owner.

    A change is durable when the call returns, or nothing was changed.
    """

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / FILE

    def read(self) -> dict[str, PushSubscription]:
        """Read the subscriptions on disk, by name.

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
        change_json(self._files, self._path, VERSION, {"subscriptions": plain}, mode=MODE)
