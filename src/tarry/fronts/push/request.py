"""A message as a request: its body, signed by Standard Webhooks, and its other fields in headers.

Where the subscription says so, the request is a CloudEvent besides (``cloud_event.py``).

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
from typing import NamedTuple
from urllib.parse import quote

from tarry.api.push import PushSubscription, secret_key
from tarry.base.version import VERSION
from tarry.fronts.push.cloud_event import EventMaker
from tarry.fronts.push.message import PushMessage
from tarry.message.cloud_event import CONTENT_TYPE, PREFIX
from tarry.message.trace_context import TRACEPARENT, parse_traceparent

OCTETS = "application/octet-stream"
PROPERTIES_MAX = 4096
"""Maximum length of the properties as JSON; longer ones are left out, and a header says so.

Receivers limit their headers, some to 8 KiB.
"""

_PLAIN = re.compile(r"[\x21-\x24\x26-\x7e]([\x20-\x24\x26-\x7e]*[\x21-\x24\x26-\x7e])?|")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
_TYPE = re.compile(
    r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}( *; *[A-Za-z0-9_.-]+=[A-Za-z0-9\"_./:+-]+)*"
)


class PushRequest(NamedTuple):
    """One request, as it is sent."""

    headers: dict[str, str]
    """All but those of HTTP itself."""
    body: bytes


class RequestMaker:
    """Makes the requests of a subscription."""

    def __init__(self, subscription: PushSubscription) -> None:
        self._signer = Signer(subscription.secrets)
        own = {name.lower(): value for name, value in subscription.headers.items()}
        self._content_type = own.pop(CONTENT_TYPE, OCTETS)
        self._events = EventMaker(subscription.cloudevents, own) if subscription.cloudevents != "off" else None
        if self._events is not None:
            own = self._events.other_headers
        self._headers = {"user-agent": f"tarry/{VERSION}", "x-tarry-subscription": subscription.name, **own}

    def request(self, message: PushMessage, now_ms: int) -> PushRequest:
        """Return the request of a message's next try."""
        webhook_id = message.webhook_id if message.attempt else f"test_{message.seq:x}_{message.born_ms:x}"
        timestamp = str(now_ms // 1000)
        properties = dict(message.properties)
        given = properties.get(CONTENT_TYPE)
        content_type = given if given is not None and _TYPE.fullmatch(given) else self._content_type
        said, body = {CONTENT_TYPE: content_type}, message.body
        if self._events is not None:
            said, body = self._events.event(message, properties, webhook_id, content_type)
            properties = {name: value for name, value in properties.items() if not name.startswith(PREFIX)}
        headers = {
            **self._headers,
            **said,
            "webhook-id": webhook_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": self._signer.signatures(webhook_id, timestamp, body),
            "x-tarry-topic": encoded(message.topic),
            "x-tarry-id": encoded(message.id),
            "x-tarry-due-ms": str(message.due_ms),
            "x-tarry-attempt": str(message.attempt),
        }
        if message.key is not None:
            headers["x-tarry-key"] = encoded(message.key)
        if message.tag is not None:
            headers["x-tarry-tag"] = encoded(message.tag)
        if properties:
            _add_properties(headers, properties)
        if not message.attempt:
            headers["x-tarry-test"] = "true"
        return PushRequest(headers, body)


def _add_properties(headers: dict[str, str], properties: Mapping[str, str]) -> None:
    if TRACEPARENT in properties and parse_traceparent(properties[TRACEPARENT]) is not None:
        headers.setdefault(TRACEPARENT, properties[TRACEPARENT])
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
