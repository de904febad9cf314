"""Files that a broker holds for a backup: they stay as they are while somebody copies them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldFiles:
    """The files of a broker at one moment, held for whoever copies them.

    ``backup`` names the hold. The files of ``directory``, on the broker's machine, never change. Those in ``lengths``
    (paths in it) go on growing: only so many bytes of them count. ``store`` (a path or URI) is copied as of
    ``store_version``; ``at_ms`` is the moment, and ``data`` the broker's data directory. The hold ends ``held_ms``
    after it was begun or extended last.
    """

    backup: str
    directory: str
    lengths: dict[str, int]
    data: str
    store: str
    store_version: int
    at_ms: int
    held_ms: int
