"""Messages as jobs: the JSON of what is handed out, or looked at."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import pyarrow as pa

from tarry.fronts.http.lmstfy.answers import json_bytes
from tarry.fronts.http.lmstfy.names import VERSION, job_ids
from tarry.message.properties import has_none
from tarry.message.reserved import first_places
from tarry.message.topics import RESERVED

VERSION_PROPERTY = "lmstfy-job-version"
"""Property of a message whose job id has a version before it."""


class LmstfyJob(NamedTuple):
    """A message, as lmstfy speaks of it."""

    id: str
    namespace: str
    queue: str
    body: bytes
    ttl_s: int
    """Seconds until it expires; 0: it does not expire."""
    elapsed_ms: int
    remain_tries: int
    attributes: dict[str, str] | None

    def fields(self) -> dict[str, Any]:
        """Return the job as a JSON object."""
        return {
            "namespace": self.namespace,
            "queue": self.queue,
            "job_id": self.id,
            "data": base64.b64encode(self.body).decode(),
            "ttl": self.ttl_s,
            "elapsed_ms": self.elapsed_ms,
            "remain_tries": self.remain_tries,
            "attributes": self.attributes,
        }

    def handed_out(self) -> bytes:
        """Return the JSON of a job that a consumer gets."""
        attributes = b"null" if self.attributes is None else json_bytes(self.attributes)
        return b'{"attributes":%s,"data":"%s","elapsed_ms":%d,"job_id":"%s","msg":"new job",' % (
            attributes,
            base64.b64encode(self.body),
            self.elapsed_ms,
            self.id.encode(),
        ) + b'"namespace":"%s","queue":"%s","remain_tries":%d,"ttl":%d}' % (
            self.namespace.encode(),
            self.queue.encode(),
            self.remain_tries,
            self.ttl_s,
        )


def jobs_of(
    batch: pa.RecordBatch, topic: str, queue: tuple[str, str], now_ms: int, remain_tries: list[int]
) -> list[LmstfyJob]:
    """Return a batch of messages of one topic as jobs of the queue (namespace, name)."""
    properties = batch.column("properties")
    own_places = has_none(properties)
    pairs = [None] * batch.num_rows if properties.null_count == batch.num_rows else properties.to_pylist()
    bodies, born, expire = batch.column("body").to_pylist(), values_of(batch, "born_ms"), values_of(batch, "expire_ms")
    own = list(zip(values_of(batch, "seq"), values_of(batch, "due_ms"), strict=True))
    places = own if own_places else first_places(batch)
    ids = job_ids(topic, [first or place for first, place in zip(places, own, strict=True)])
    rows = zip(ids, bodies, pairs, born, expire, remain_tries, strict=True)
    return [
        LmstfyJob(
            VERSION + id if _has_version(attributes) else id,
            *queue,
            body,
            0 if expire_ms is None else max(1, (expire_ms - now_ms + 500) // 1000),
            max(0, now_ms - born_ms),
            max(0, tries),
            _attributes(attributes),
        )
        for id, body, attributes, born_ms, expire_ms, tries in rows
    ]


def values_of(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return the values of a column of numbers.

    If it has no nulls, they come by way of numpy, which takes a fraction of the time.
    """
    column = batch.column(name)
    values: list[Any] = column.to_pylist() if column.null_count else column.to_numpy().tolist()
    return values


def remaining(batch: pa.RecordBatch, group_tries: int) -> list[int]:
    """Return how often each message may still be handed out after this delivery.

    Ready messages (without the column ``attempt``) have not been handed out yet.
    """
    attempts = values_of(batch, "attempt") if "attempt" in batch.schema.names else [0] * batch.num_rows
    own = values_of(batch, "tries")
    return [(tries or group_tries or _UNLIMITED) - attempt for tries, attempt in zip(own, attempts, strict=True)]


_UNLIMITED = (1 << 16) - 1
"""lmstfy counts no further."""


def _attributes(pairs: list[tuple[str, str]] | None) -> dict[str, str] | None:
    if not pairs:
        return None
    return {name: text for name, text in pairs if not name.startswith(RESERVED) and name != VERSION_PROPERTY} or None


def _has_version(pairs: list[tuple[str, str]] | None) -> bool:
    return pairs is not None and any(name == VERSION_PROPERTY for name, _ in pairs)


def listed(jobs: list[LmstfyJob]) -> bytes:
    """Return the JSON of several jobs that a consumer gets."""
    return b"[%s]" % b",".join(job.handed_out() for job in jobs)
