"""A message as a request: its body, signed by Standard Webhooks, and its other fields in headers.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md: ``webhook-signature`` has
for each secret ``v1,`` and the base64 of HMAC-SHA256 of ``ID.TIMESTAMP.BODY``. A header is made of printable ASCII
alone, whatever is in a message: texts are percent-encoded, properties are JSON, which is ASCII.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa

from tarry.api.push import PushSubscription, secret_key
from tarry.base.version import VERSION
from tarry.message.receipt import id_of
from tarry.message.trace_context import TRACEPARENT, parse_traceparent

CONTENT_TYPE = "content-type"
"""The property of a message that names the type of its body."""
OCTETS = "application/octet-stream"
PROPERTIES_MAX = 4096
"""Maximum length of the properties as JSON; longer ones are left out, and a header says so.

Receivers limit their headers, some to 8 KiB.
"""
TEST_BODY = b'{"type": "tarry.test", "data": {"text": "This is a test of a push subscription."}}'

_PLAIN = re.compile(r"[\x21-\x24\x26-\x7e]([\x20-\x24\x26-\x7e]*[\x21-\x24\x26-\x7e])?|")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
_TYPE = re.compile(
    r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}( *; *[A-Za-z0-9_.-]+=[A-Za-z0-9\"_./:+-]+)*"
)


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
    """Return the rows of a delivery (:data:`tarry.api.views.DELIVERY`) as messages."""
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


class RequestMaker:
    """Makes the headers of a subscription's requests."""

    def __init__(self, subscription: PushSubscription) -> None:
        self._signer = Signer(subscription.secrets)
        own = {name.lower(): value for name, value in subscription.headers.items()}
        self._content_type = own.pop(CONTENT_TYPE, OCTETS)
        self._headers = {"user-agent": f"tarry/{VERSION}", "x-tarry-subscription": subscription.name, **own}

    def headers(self, message: PushMessage, now_ms: int) -> dict[str, str]:
        """Return all headers but those of HTTP itself."""
        webhook_id = message.webhook_id if message.attempt else f"test_{message.seq:x}_{message.born_ms:x}"
        timestamp = str(now_ms // 1000)
        headers = {
            **self._headers,
            CONTENT_TYPE: self._content_type,
            "webhook-id": webhook_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": self._signer.signatures(webhook_id, timestamp, message.body),
            "x-tarry-topic": encoded(message.topic),
            "x-tarry-id": encoded(message.id),
            "x-tarry-due-ms": str(message.due_ms),
            "x-tarry-attempt": str(message.attempt),
        }
        if message.key is not None:
            headers["x-tarry-key"] = encoded(message.key)
        if message.tag is not None:
            headers["x-tarry-tag"] = encoded(message.tag)
        if message.properties:
            self._add_properties(headers, dict(message.properties))
        if not message.attempt:
            headers["x-tarry-test"] = "true"
        return headers

    def _add_properties(self, headers: dict[str, str], properties: Mapping[str, str]) -> None:
        if TRACEPARENT in properties and parse_traceparent(properties[TRACEPARENT]) is not None:
            headers.setdefault(TRACEPARENT, properties[TRACEPARENT])
        given = properties.get(CONTENT_TYPE)
        if given is not None and _TYPE.fullmatch(given):
            headers[CONTENT_TYPE] = given
        text = json.dumps(properties, separators=(",", ":"))
        if len(text) <= PROPERTIES_MAX:
            headers["x-tarry-properties"] = text.replace("\x7f", "\\u007f")
        else:
            headers["x-tarry-properties-omitted"] = str(len(text))


class Signer:
    """Signs with each of several secrets."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._macs = [hmac.new(secret_key(secret), digestmod=hashlib.sha256) for secret in secrets]

    def signatures(self, id: str, timestamp: str, body: bytes) -> str:
        """Return the value of ``webhook-signature``."""
        head = f"{id}.{timestamp}.".encode()
        signatures = []
        for keyed in self._macs:
            mac = keyed.copy()
            mac.update(head)
            mac.update(body)
            signatures.append(f"v1,{base64.b64encode(mac.digest()).decode()}")
        return " ".join(signatures)


def encoded(text: str) -> str:
    """Return a text as the value of a header.

    It is printable ASCII; all else is percent-encoded, as UTF-8.
    """
    return text if _PLAIN.fullmatch(text) else quote(text, safe=_SAFE)
