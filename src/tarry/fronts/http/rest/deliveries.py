"""The name of a message that a JSON consumer holds: ``delivery``, its lease and offset as one text.

Numbers of leases have up to 63 bits, and many readers of JSON keep no more than 53 of a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Int64s
from tarry.fronts.http.rest.description import Schema
from tarry.message.receipt import id_of

PATTERN = r"^[0-9]{1,19}\.[0-9]{1,19}$"
SCHEMA: Schema = {"type": "string", "pattern": PATTERN, "description": "What to settle it with."}
_DELIVERY = re.compile(PATTERN)
_INT64_MAX = (1 << 63) - 1


def delivery_of(lease: int, offset: int) -> str:
    """Return the name of one message that a consumer holds."""
    return f"{lease}.{offset}"


def with_id(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row of messages as in JSON: each has an id, its producer's or the broker's."""
    values.setdefault("id", id_of(values["seq"]))
    return values


def with_delivery(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row of :data:`tarry.api.row_schemas.DELIVERY` as in JSON: its ``delivery`` settles it."""
    values["delivery"] = delivery_of(values.pop("lease"), values["offset"])
    return with_id(values)


def columns_of(deliveries: Sequence[str]) -> tuple[Int64s, Int64s]:
    """Leases and offsets, an array of each with an entry a delivery.

    Raises:
        InvalidArgumentError: names the place of the one that is none.
    """
    pairs = list(_pairs(deliveries))
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _pairs(deliveries: Sequence[str]) -> Iterator[tuple[int, int]]:
    for place, text in enumerate(deliveries):
        if not isinstance(text, str) or not _DELIVERY.match(text):
            raise InvalidArgumentError(f"deliveries: number {place} is {text!r:.60}; allowed: LEASE.OFFSET as received")
        lease, _, offset = text.partition(".")
        if int(lease) > _INT64_MAX or int(offset) > _INT64_MAX:
            raise InvalidArgumentError(f"deliveries: number {place} is {text!r:.60}; allowed: LEASE.OFFSET as received")
        yield int(lease), int(offset)
