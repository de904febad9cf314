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

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tarry.base.histogram import Histogram
from tarry.log.files import AppendFile, Files
from tarry.log.frame import LogKind


class LogPlace(NamedTuple):
    """A place in one log: a segment, by the number that it begins with, and a position in it."""

    segment: int
    position: int


class Part(NamedTuple):
    """Bytes of one log, as they are in its segment: a follower that writes them there has the same file.

    The first part of a segment begins at position 0, and begins with the file's header. One without content takes the
    segment back (:meth:`Log.discard`).

    Of kind ``FILES``: a small file as a whole; the content is its path in the directory, of ``position`` bytes, and
    what is in it.
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


class ClaimWatch(Protocol):
    """Is told how a claim comes along, so that what is not in the logs can be made ready meanwhile.

    Called on the engine's own thread: it has to return at once, and never raises.
    """

    def suspected(self) -> None:
        """Note that the owner is silent, and may be taken over soon. Once for each silence."""
        ...

    def claimed(self, epoch: int) -> None:
        """Note that an epoch is this owner's, whose logs are read now."""
        ...


class SharedLogs(Protocol):
    """The part of an engine whose logs another owner may take over while this one lives.

    A hand-out is not in the log before it takes place, so no look at the log can stop it. An owner may hand out as long
    as its *lease* lasts, which its rounds prolong, and what is due up to :attr:`until_ms`; the next owner waits for the
    lease's end, and counts what is due up to :attr:`left_ms` as handed out.
    """

    @property
    def left_ms(self) -> int:
        """Latest due time that former owners may have handed out; NEVER_MS: the ready log has all of that."""
        ...

    @property
    def lacks_base(self) -> bool:
        """True where the former owner has made no base: then the next one reads what both have written."""
        ...

    @property
    def until_ms(self) -> int:
        """Latest due time of what may be handed out now; NEVER_MS while nothing may be."""
        ...

    @property
    def state(self) -> dict[str, Any]:
        """Figures for people.

        ``uri``; ``role``; ``state``: "handing out", "waiting for former leases" or "store away" (``away_since_ms``: no
        round was answered for a lease); ``epoch``, ``rounds`` (of it), ``leased``; ``answered_before_ms``: since the
        last answered round; ``round_ms``: how long rounds took; ``requests`` by kind.
        """
        ...

    def watch_claim(self, watch: ClaimWatch) -> None:
        """Have somebody told how the claim that comes next goes along."""
        ...

    def rounds_us(self) -> Histogram:
        """Return how long the answered rounds took, from PUT to answer, in microseconds."""
        ...

    def serve(self, addresses: Mapping[str, str]) -> None:
        """Note that it serves, at these addresses by front, for who asks in its directory."""
        ...

    def may_hand_out(self) -> bool:
        """Return whether the lease lasts. Cheap: it is asked under locks."""
        ...

    @property
    def lease_left_ms(self) -> int:
        """So long the lease lasts, if nothing extends it; 0: it does not. Cheap."""
        ...

    def is_confirmed(self) -> bool:
        """Return whether it was certain, no longer ago than a lease, that nobody else owned the logs.

        Before :meth:`may_hand_out` at a new owner: it knows all that the former one answered. Cheap.
        """
        ...

    def renew(self) -> None:
        """Write a round, so that the lease and :attr:`until_ms` move on, and wait until it is answered.

        Raises:
            OwnershipLostError: another one owns the logs.
        """
        ...

    def confirm(self) -> None:
        """Return when it is certain that this was the owner at some moment after the call began.

        For answers that rest on former rounds: a later owner may have changed that. Raises OwnershipLostError.
        """
        ...

    def await_turn(self) -> None:
        """Return when the writer of a log that has several rounds under way should begin the next.

        That is so long after its last turn as a request takes: what comes meanwhile is written together, for each
        request has a price. It does not wait for an answer of the store. One thread at a time.
        """
        ...

    def keep(self, path: Path) -> None:
        """Make a small file that a library wrote part of the logs, as it is now; durable on return.

        Those that are replaced by :attr:`LogEngine.files` are so already. Raises OwnershipLostError.
        """
        ...

    def keep_base(self, files: Mapping[str, Path]) -> None:
        """Make what the directory has a base, from which a new owner begins instead of the first round.

        ``files``: those of it that are no part of the logs, by path in the directory; nobody may change them meanwhile.
        What a base makes superfluous may be deleted once this returns.

        Raises:
            OwnershipLostError: another one owns the logs. UnavailableError: the store cannot be asked; try again.
        """
        ...

    def stop_by(self, left_s: float) -> None:
        """Have nobody wait longer than this for a store that gives no answer: FatalError then.

        What they wait for may be in the log or not.
        """
        ...

    def hand_over(self, left_ms: int) -> None:
        """End the lease, and write that down, so that the next owner need not wait for its end.

        ``left_ms``: the next owner's :attr:`left_ms`.
        """
        ...


class LogEngine(Protocol):
    """Keeper of the logs of one broker."""

    @property
    def files(self) -> Files:
        """The files of its directory.

        Where machines share the logs, small files that are replaced are part of them.
        """
        ...

    @property
    def shared(self) -> SharedLogs | None:
        """Its part for logs that another may take over; None: an owner keeps them as long as it lives."""
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

    @property
    def loss(self) -> str:
        """Reason for which :meth:`is_owner` is false, for people."""
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
