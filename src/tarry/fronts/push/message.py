"""A message of a delivery, as the pusher has it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tarry.message.receipt import id_of

TEST_BODY = b'{"type": "tarry.test", "data": {"text": "This is a test of a push subscription."}}'


@dataclass(slots=True, eq=False)
class PushMessage:
    """One message of a delivery, and its lease."""

    seq: int
    topic: str
    due_ms: int
    id: str
    key: str | None
    tag: str | None
    properties: list[tuple[str, str]]
    body: bytes
    born_ms: int
    offset: int
    lease: int
    attempt: int
    lease_until_s: float = 0.0
    """Earliest end of the lease, as the loop's time."""

    @property
    def webhook_id(self) -> str:
        """An id that is the same for every try of this message, and no other's.

        An id of the producer's may name several, as all occurrences of a series do; a number alone begins anew with a
        new data directory.
        """
        return f"msg_{self.seq:016x}_{self.born_ms:x}"


_COLUMNS = ("seq", "topic", "due_ms", "id", "key", "tag", "properties", "body", "born_ms", "offset", "lease", "attempt")


def messages_of(batch: pa.RecordBatch) -> list[PushMessage]:
    """Return the rows of a delivery (:data:`tarry.api.row_schemas.DELIVERY`) as messages."""
    found = []
    for row in zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True):
        message = PushMessage(*row)
        message.id = message.id or id_of(message.seq)
        message.properties = message.properties or []
        found.append(message)
    return found


def trial_message(topic: str, now_ms: int, number: int) -> PushMessage:
    """Return a test message, which is in no topic; ``attempt`` is 0."""
    return PushMessage(number, topic, now_ms, "tarry.test", None, None, [], TEST_BODY, now_ms, 0, 0, 0)
