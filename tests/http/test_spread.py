"""The option ``spread`` by the three APIs of the HTTP port: never before the due time, and within the span."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarry.api.operations import ListPending
from tarry.message.spreading import offset_ms
from tests.http import lmstfy_place
from tests.http.rest import Rest, serving
from tests.http.sqs_place import client_of, error_of, make_queue

HOUR_MS = 3_600_000


def test_in_the_query_in_json_and_in_a_header(rest: Rest) -> None:
    due_ms = rest.broker.clock.now_ms() + HOUR_MS
    expected = due_ms + offset_ms(900_000, "a")
    assert rest.schedule(due_ms=due_ms, spread="15m", id="a")["due_ms"] == expected
    for topic, more in (
        ("json", {"json": {"due_ms": due_ms, "spread": 900, "id": "a"}}),
        ("header", {"headers": {"x-tarry-spread": "15m", "x-tarry-due-ms": str(due_ms), "x-tarry-id": "a"}}),
    ):
        answer = rest.http.post(f"/v1/topics/{topic}/messages", **more)  # type: ignore[arg-type]
        assert answer.json()["due_ms"] == expected, answer.text
    refused = rest.post("/v1/topics/t/messages", {"body": "x", "spread": "2d"})
    assert (refused.status_code, refused.json()["error"]) == (422, "invalid_message")


def test_an_attribute_of_sqs(tmp_path: Path) -> None:
    def attribute(text: str) -> Any:
        return {"tarry-spread": {"DataType": "Number", "StringValue": text}}

    with serving(tmp_path / "data") as place:
        client = client_of(place)
        url = make_queue(client, MessageRetentionPeriod="60")
        now_ms = place.broker.clock.now_ms()
        for _ in range(20):
            client.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=600, MessageAttributes=attribute("600000"))
        found = [message["due_ms"] for message in place.get("/v1/topics/orders/messages").json()["messages"]]
        assert len(found) == 20 and max(found) - min(found) > 60_000
        assert min(found) >= now_ms + 600_000
        refused = error_of(
            client, client.send_message, QueueUrl=url, MessageBody="x", MessageAttributes=attribute("1e3")
        )
        assert refused == ("InvalidParameterValue", 400)
    with serving(tmp_path / "strict", http_sqs_strict="on") as place:
        client = client_of(place)
        url = make_queue(client)
        refused = error_of(client, client.send_message, QueueUrl=url, MessageBody="x", MessageAttributes=attribute("1"))
        assert refused == ("InvalidParameterValue", 400)


@pytest.mark.parametrize("path", ["ns/q?delay=600&spread=600", "ns/q?spread=600&ttl=600"])
def test_a_parameter_of_lmstfy(tmp_path: Path, path: str) -> None:
    with lmstfy_place.serving(tmp_path / "data") as place:
        for _ in range(20):
            place.publish(path)
        moments = place.broker.list_whole(ListPending(limit=100)).rows.column("due_ms").to_pylist()
        assert max(moments) - min(moments) > 60_000
        assert place.ask("PUT", "ns/q?delay=600&spread=600&ttl=1199").status_code == 400
        assert place.ask("PUT", "ns/q?spread=86401").status_code == 400
