"""The fence of a shard: of several owners that still run, only the one of the newest epoch commits.

A log engine whose logs can be taken over numbers its owners: one life of one owner is an epoch. The app transaction
``owner-SHARD`` of the table is the newest epoch that has claimed the shard. Each commit under an epoch is made in the
same way: the newest version is loaded; the commit is refused if the number in *that* version is another one; it becomes
exactly the next version, and delta-rs tries nothing again by itself; after a conflict all begins anew. A claim sets the
number by such a commit, so it either lies below the version that was looked at, or takes the place of the next one.

The app transaction alone is no fence, also where every commit has it: delta-rs compares the names of transactions in
commits that came in between, not their numbers. An owner that was paused before it loaded the table finds none in
between, and its commit would stand on top of the claim.

What is not fenced: reading, writing files that no commit names yet, and deleting files (``orphans.py`` says what
protects those of a new owner). Nor is a commit of other programs, or one without an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltalake import CommitProperties, Transaction

from tarry.base.errors import OwnershipLostError

EPOCH_KEY = "tarry.epoch"
"""Key in an entry's commit info: the epoch under which the commit was made, as text; for people."""
CLAIMED_BY_KEY = "tarry.claimed_by"
"""Key in the commit info of a claim: the owner, as in the table's property; for people."""


def epoch_id(shard: int) -> str:
    """Return the name of the app transaction whose version is the newest epoch that has claimed a shard."""
    return f"owner-{shard}"


@dataclass(frozen=True, slots=True)
class Fence:
    """Judge of commits to a shard of the table at ``root`` under ``epoch``."""

    root: str
    shard: int
    epoch: int

    @property
    def id(self) -> str:
        """Name of the app transaction."""
        return epoch_id(self.shard)

    def check(self, found: int | None) -> None:
        """Check that a commit on top of a version with this number may be made.

        Raises:
            OwnershipLostError: it may not, now or ever.
        """
        if found != self.epoch:
            owner = "has no epoch" if found is None else f"is epoch {found}'s"
            raise OwnershipLostError(
                f"shard {self.shard} of the store at {self.root} {owner}, not epoch {self.epoch}'s: another owner has "
                "taken it over, and this one commits nothing more"
            )

    def check_claim(self, found: int | None) -> None:
        """Check that no later epoch has claimed the shard, by the number in a version.

        Raises:
            OwnershipLostError: one has.
        """
        if found is not None and found > self.epoch:
            self.check(found)

    def properties(self, info: Mapping[str, str], versions: Mapping[str, int]) -> CommitProperties:
        """Return the properties of a commit that is exactly the next version, or fails.

        ``info`` is for the commit info, ``versions`` are app transactions; a claim's have the epoch's.
        """
        return commit_properties({**info, EPOCH_KEY: str(self.epoch)}, versions, retries_max=0)


def commit_properties(
    info: Mapping[str, str], versions: Mapping[str, int], *, retries_max: int | None
) -> CommitProperties:
    """Return a commit's properties; ``retries_max`` None: as often as delta-rs thinks right."""
    return CommitProperties(
        custom_metadata=dict(info),
        max_commit_retries=retries_max,
        app_transactions=[Transaction(*each) for each in versions.items()] or None,
    )
