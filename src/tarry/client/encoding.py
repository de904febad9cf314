"""Requests as JSON, refused here where there is none. Imports nothing slow."""

from __future__ import annotations

import json
from typing import Any

from tarry.base.errors import InvalidArgumentError


def encoded(body: Any) -> bytes:
    """Return the JSON of a request.

    Raises:
        InvalidArgumentError: there is none.
    """
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{body!r:.80} cannot be sent: {error}") from error
