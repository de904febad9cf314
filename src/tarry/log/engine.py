"""The seam between a broker's logs and what keeps them: one owner, durable rounds, followers.

A broker has four logs (:class:`~tarry.log.frame.LogKind`), each a row of segments of which the last is written. An
engine keeps all four. What is written to a log and made durable together is a *round*: :meth:`AppendFile.write
<tarry.log.files.AppendFile.write>` begins it, :meth:`AppendFile.sync <tarry.log.files.AppendFile.sync>` returns when it
is durable **and** its writer was still the owner at that moment. So whoever syncs before it answers never answers for
what a later owner will not find. Several rounds may be under way, of one log or of several.

One life of one broker as the owner is an *epoch*. ``docs/decisions/0058-log-engines.md`` says what an engine promises,
and ``tests/engines/test_conformance.py`` holds each engine to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from tarry.log.files import AppendFile
from tarry.log.frame import LogKind


class LogPlace(NamedTuple):
    """A place in one log: a segment, by the number that it begins with, and a position in it."""

    segment: int
    position: int


class Part(NamedTuple):
    """Bytes of one log, as they are in its segment: a follower that writes them there has the same file.

    The first part of a segment begins at position 0, and begins with the file's header. One without content takes the
    segment back (:meth:`Log.discard`).
    """

    kind: LogKind
    segment: int
    position: int
    content: bytes

    @property
    def end(self) -> LogPlace:
        """The place behind it."""
        return LogPlace(self.segment, self.position + len(self.content))


class Log(Protocol):
    """One of the logs of an engine. One thread at a time, but for what is read-only."""

    @property
    def kind(self) -> LogKind:
        """Name of the log."""
        ...

    @property
    def directory(self) -> Path:
        """Directory on this machine in which its segments can be read."""
        ...

    def open(self, segment: int) -> AppendFile:
        """Open a segment for appending, or begin it: its name is durable on return.

        Raises:
            OSError: it could not be opened or begun; one that is not there yet is not there then either.
        """
        ...

    def discard(self, segment: int) -> None:
        """Take back the last segment, of which nothing was synced; durable on return."""
        ...

    def trim(self, segment: int) -> None:
        """Delete a segment, the oldest one: nobody needs it any more. One that is already gone is fine."""
        ...


class LogEngine(Protocol):
    """Keeper of the logs of one broker."""

    @property
    def fences_store(self) -> bool:
        """True if a former owner may still run after a claim: commits to the store then carry the epoch."""
        ...

    def claim(self) -> int:
        """Become the owner, and return the number of this epoch, which is higher than all before.

        Nothing may be opened for writing before.

        Raises:
            LockedError: another one owns the logs, and this engine cannot take them over while it lives.
        """
        ...

    def is_owner(self) -> bool:
        """Return whether the logs are still this owner's, as far as can be seen.

        ``sync`` rests on its own look; this is for owners that write nothing for a while.
        """
        ...

    def log(self, kind: LogKind) -> Log:
        """Return one of the logs."""
        ...

    def release(self) -> None:
        """Give the logs up, after the last sync."""
        ...


P = TypeVar("P")


class Followed(Protocol[P]):
    """An engine whose logs can be followed. ``P``: its way to say how far, which others only keep.

    The owner may follow, and where an engine keeps logs that machines share, any other process.
    """

    def end(self) -> P:
        """Return how far the logs are durable; before any was opened, how far former owners wrote."""
        ...

    def follow(self, position: P | None) -> Iterator[tuple[P, Part]]:
        """Yield what is behind ``position`` up to the present end, each part with the place behind it.

        None: from the oldest that is kept. It is gapless within each log, and what one part refers to in another log
        comes before it.

        Raises:
            TrimmedError: a segment behind ``position`` was deleted.
        """
        ...
