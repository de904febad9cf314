"""One message as a producer writes it. Imports nothing slow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a producer writes it, its due time resolved. ``ttl_ms`` counts from acceptance."""

    topic: str
    body: bytes
    due_ms: int
    id: str | None = None
    key: str | None = None
    tag: str | None = None
    properties: Mapping[str, str] | None = None
    ttl_ms: int | None = None
    tries: int | None = None
    on_key: str | None = None
    if_seq: int | None = None
    repeat: str | None = None
    order_key: str | None = None
    late: str | None = None
    spread_ms: int | None = None
