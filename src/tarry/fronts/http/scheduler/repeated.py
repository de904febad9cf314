"""Requests that are repeated: the same token with the same parameters asks for nothing new.

A client that has lost an answer sends its request again with the same ``ClientToken``. What a token has asked for is
kept as a digest, so that a token that comes with other parameters is told so, and does not pass for a repeat.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from tarry.fronts.http.scheduler.errors import conflict

DIGEST_BYTES = 16


def asked_of(fields: Mapping[str, Any]) -> str:
    """Return the digest of a request's parameters, whatever their order."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def is_repeated(former_token: str | None, former_asked: str | None, token: str | None, asked: str | None) -> bool:
    """Return whether a request is the one that was carried out before.

    Where it is not known what was asked for, the token decides.

    Raises:
        SchedulerError: the token is the same, and the parameters are not.
    """
    if token is None or token != former_token:
        return False
    if None not in (former_asked, asked) and former_asked != asked:
        raise conflict(
            f"ClientToken {token} was used with other parameters; allowed: the same ones again, or another token."
        )
    return True
