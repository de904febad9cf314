"""What can go wrong in the store alone; everything else is in ``tarry.base.errors``."""

from __future__ import annotations

from tarry.base.errors import TarryError


class StaleCommitError(TarryError):
    """The table has moved on: another driver committed, or this one plans from an old state. Nothing was committed."""

    code = "stale_commit"
