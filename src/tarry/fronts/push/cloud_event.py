"""A pushed message as a CloudEvent 1.0 over HTTP, in binary or structured mode.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md. A message that came as
an event leaves as that event, with its own id, source and type. Any other has an id of its own, and its source and its
type by the subscription's headers, or by its topic and its tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from tarry.base.delay import format_ms
from tarry.fronts.kit.cloud_event_headers import PREFIX, encoded_attribute
from tarry.fronts.push.message import PushMessage
from tarry.message.cloud_event import CONTENT_TYPE, VERSION, attributes_in
from tarry.message.cloud_event_json import JSON_TYPE, to_json

TYPE = "tarry.message"
"""Type of the event of a message without a tag, where the subscription has none."""
TEST_TYPE = "tarry.test"


class EventMaker:
    """Makes events of a subscription's messages."""

    def __init__(self, mode: str, headers: Mapping[str, str]) -> None:
        """Make it. ``headers``: the subscription's, in lower case; attributes among them are its events'."""
        self._is_structured = mode == "structured"
        self._attributes = {
            name.removeprefix(PREFIX): value for name, value in headers.items() if name.startswith(PREFIX)
        }
        self.other_headers = {name: value for name, value in headers.items() if not name.startswith(PREFIX)}
        """The headers that are no attributes."""

    def event(
        self, message: PushMessage, properties: Mapping[str, str], id: str, content_type: str
    ) -> tuple[dict[str, str], bytes]:
        """Return the headers and the body of the event that a message is; ``id``: one of its own."""
        attributes = {**self._attributes, **self._of(message, properties, id)}
        if self._is_structured:
            body = to_json(attributes, content_type, message.body)
            return {CONTENT_TYPE: f"{JSON_TYPE}; charset=utf-8"}, body
        headers = {PREFIX + name: encoded_attribute(value) for name, value in attributes.items()}
        return {**headers, CONTENT_TYPE: content_type}, message.body

    def _of(self, message: PushMessage, properties: Mapping[str, str], id: str) -> dict[str, str]:
        due = format_ms(message.due_ms)
        given = attributes_in(properties)
        if given:
            return {"time": due, **given}
        kind = (message.tag or TYPE) if message.attempt else TEST_TYPE
        made = {
            "specversion": VERSION,
            "id": id,
            "source": self._attributes.get("source", f"/topics/{quote(message.topic, safe='')}"),
            "type": self._attributes.get("type", kind),
            "time": due,
        }
        return made if message.key is None else {**made, "subject": message.key}
