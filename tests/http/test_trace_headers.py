"""The trace of a message that comes by HTTP: the header of REST, and the attribute of SQS, up to the collector."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.fronts.http.rest.trace_headers import with_trace
from tarry.message.rows import PLACES, make_row
from tests.http.rest import serving
from tests.http.sqs_place import client_of, make_queue, received
from tests.otlp_receiver import attributes_of, receiver

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"


def properties_after(headers: dict[str, str], **options: object) -> object:
    row = with_trace(make_row("orders", b"", **options), {name: text.encode() for name, text in headers.items()})  # type: ignore[arg-type]
    return dict(row[PLACES["properties"]] or ()) if len(row) == len(PLACES) else None


def test_a_message_has_the_trace_of_its_request() -> None:
    headers = {"traceparent": f" {SAMPLED}", "tracestate": "vendor=1"}
    trace = {"traceparent": SAMPLED, "tracestate": "vendor=1"}
    assert properties_after(headers) == trace
    assert properties_after(headers, properties={"a": "b"}) == {"a": "b", **trace}
    assert properties_after({**headers, "tracestate": "x" * 513}) == {"traceparent": SAMPLED}
    assert properties_after({**headers, "tracestate": "é"}) == {"traceparent": SAMPLED}


@pytest.mark.parametrize("given", [{}, {"traceparent": "nonsense"}, {"tracestate": "vendor=1"}])
def test_what_is_no_trace_is_passed_over(given: dict[str, str]) -> None:
    assert properties_after(given) is None


def test_what_a_message_says_itself_counts() -> None:
    own = {"traceparent": "mine"}
    assert properties_after({"traceparent": SAMPLED, "tracestate": "v=1"}, properties=own) == own


def test_from_the_request_to_the_collector(tmp_path: Path) -> None:
    with receiver() as collector, serving(tmp_path / "data", otlp_endpoint=collector.endpoint) as place:
        header = {"traceparent": SAMPLED}
        assert place.http.post("/v1/topics/orders/messages", content=b"x", headers=header).status_code == 201
        assert place.http.post("/v1/topics/orders/messages", json={"body": "y"}, headers=header).status_code == 201
        came: list[dict[str, object]] = []
        while len(came) < 2:
            came += place.receive(max_messages=2)
        assert [message["properties"] for message in came] == [header, header]
        client = client_of(place)
        url = make_queue(client)
        attribute = {"DataType": "String", "StringValue": SAMPLED}
        client.send_message(QueueUrl=url, MessageBody="z", MessageAttributes={"traceparent": attribute})
        [message] = received(client, url)
        assert message["MessageAttributes"] == {"traceparent": attribute}
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        spans = collector.wait(4)
    waits = [each for each in spans if each.name.startswith("wait ")]
    assert {(each.trace_id.hex(), each.parent_span_id.hex()) for each in waits} == {(TRACE, PARENT)}
    assert sorted(attributes_of(each)["messaging.message.body.size"] for each in waits) == [1, 1, 1]
    [lease] = [each for each in spans if each.name.startswith("lease ")]
    assert attributes_of(lease)["tarry.outcome"] == "acknowledged"
