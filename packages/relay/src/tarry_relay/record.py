"""A Kafka record as a row of the store, and back, to the byte.

| Kafka | row |
|---|---|
| key | ``key``; what is not UTF-8, or begins with ``base64:`` itself, as ``base64:`` and its base64; null is null |
| value | ``body``; null is null |
| headers | property ``kafka.headers``: a JSON list of ``[name, value]`` in order; repeated names stay, null is null |
| timestamp | ``born_ms``; -1 where the record has none |
| topic, partition, offset | ``id``, as ``topic/partition/offset`` |

A header's value is bytes. It is written as the text that it is in UTF-8; a byte that is none becomes a lone surrogate
(U+DC80 to U+DCFF, Python's ``surrogateescape``), which JSON writes as ``\\udcXX``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tarry.message.schema import PROPERTIES, SCHEMA
from tarry_relay.headers import Header

KEY_CODED = "base64:"
HEADERS = "kafka.headers"


def key_text(key: bytes | None) -> str | None:
    """Return a Kafka key as text for the column ``key``."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return KEY_CODED + base64.b64encode(key).decode()
    return KEY_CODED + base64.b64encode(key).decode() if text.startswith(KEY_CODED) else text


def key_bytes(text: str | None) -> bytes | None:
    """Return the Kafka key of a text (inverse of :func:`key_text`)."""
    if text is None:
        return None
    return base64.b64decode(text[len(KEY_CODED) :]) if text.startswith(KEY_CODED) else text.encode()


def headers_text(headers: Sequence[Header]) -> str | None:
    """Return headers as text for the property; None if there are none."""
    if not headers:
        return None
    return json.dumps([(n, None if v is None else v.decode("utf-8", "surrogateescape")) for n, v in headers])


def headers_of(text: str | None) -> list[Header]:
    """Return the headers of a text (inverse of :func:`headers_text`)."""
    if not text:
        return []
    return [(n, None if v is None else v.encode("utf-8", "surrogateescape")) for n, v in json.loads(text)]


class RecordRows:
    """Rows of :data:`tarry.message.schema.SCHEMA`, gathered one by one."""

    def __init__(self) -> None:
        self.bytes = 0
        self._rows: list[tuple[object, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        seq: int,
        topic: str,
        due_ms: int,
        id: str,
        key: str | None,
        headers: str | None,
        body: bytes | None,
        born_ms: int,
        kind: int,
    ) -> None:
        """Add a row."""
        self._rows.append((seq, topic, due_ms, id, key, headers, body, born_ms, kind))
        self.bytes += (len(body) if body else 0) + (len(headers) if headers else 0) + 128

    def table(self) -> pa.Table:
        """Return all rows as a table."""
        rows = len(self)
        gathered = dict(zip(_GATHERED, zip(*self._rows, strict=True), strict=False))  # empty without rows
        headers = gathered.pop("headers", ())
        columns = {name: pa.array(values, SCHEMA.field(name).type) for name, values in gathered.items()}
        columns["properties"] = _properties(headers)
        arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


_GATHERED = ("seq", "topic", "due_ms", "id", "key", "headers", "body", "born_ms", "kind")


def _properties(headers: Sequence[str | None]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), PROPERTIES)
    return pa.array([None if text is None else [(HEADERS, text)] for text in headers], PROPERTIES)


def headers_column(batch: pa.RecordBatch) -> list[str | None]:
    """Return the property of each row of a batch; None for a row without it."""
    properties = batch.column("properties")
    if properties.null_count == batch.num_rows:
        return [None] * batch.num_rows
    texts: list[str | None] = pc.map_lookup(properties, HEADERS, "first").to_pylist()
    return texts
