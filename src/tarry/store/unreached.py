"""Errors of a store on object storage that cannot be asked, as one sentence."""

from __future__ import annotations

import os

from tarry.base.errors import InvalidArgumentError, UnavailableError
from tarry.log.objects.s3_refusals import AskedStore, reason_of
from tarry.store.place import Place


def unreached(place: Place, error: Exception) -> InvalidArgumentError | UnavailableError | None:
    """Return what an error of delta-rs or Arrow says of a store in S3; None: it is elsewhere, or was read.

    An InvalidArgumentError: to ask again is of no use before somebody mends it.
    """
    if place.local is not None or not place.uri.startswith("s3://") or not isinstance(error, OSError):
        return None
    reason = reason_of(str(error), "read the store", AskedStore.of(place.uri, os.environ))
    kind = InvalidArgumentError if reason.is_refusal else UnavailableError
    return kind(f"the store {place.uri} cannot be asked: {reason.text}")
