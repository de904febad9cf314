"""CloudEvents that are POSTed to Tarry's own API: made by the official package, in each content mode, good and bad."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings import http as binding
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.errors import InvalidMessageError
from tarry.fronts.http.rest import cloud_events
from tarry.message.cloud_event import attributes_in
from tarry.message.cloud_event_json import read_batch, read_json, to_json
from tests.http.rest import Rest

PLACE = "/v1/topics/orders/messages"
FORMAT = JSONFormat()
STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
DUE = "2050-01-01T00:00:00Z"
DUE_MS = 2_524_608_000_000


def event(id: str = "1", data: Any = None, **attributes: Any) -> CloudEvent:
    given = {"id": id, "source": "https://shop.example/orders", "type": "com.example.order.paid", "specversion": "1.0"}
    return CloudEvent(attributes={**given, **attributes}, data=data)


def sent(rest: Rest, message: binding.HTTPMessage, place: str = PLACE) -> Any:
    return rest.http.post(place, content=message.body, headers={k.lower(): v for k, v in message.headers.items()})


@pytest.mark.parametrize("form", [binding.to_binary, binding.to_structured])
def test_an_event_comes_back_as_it_was(rest: Rest, form: Any) -> None:
    made = event(
        data={"n": 1.0, "große": "Maße"},
        datacontenttype="application/json",
        subject='50% off "Größe"',
        time=datetime(2030, 1, 2, 3, 4, 5, 678_000, UTC),
        dataschema="https://shop.example/schema",
        color="rot",
    )
    answer = sent(rest, form(made, FORMAT))
    assert answer.status_code == 201, answer.text
    assert answer.json()["id"] == "https://shop.example/orders 1"
    again = sent(rest, form(made, FORMAT))
    assert (again.status_code, again.json()["outcome"]) == (200, "duplicate")
    [message] = rest.receive()
    assert json.loads(message["body"]) == {"n": 1.0, "große": "Maße"}
    properties = message["properties"]
    raw = to_json(attributes_in(properties), properties["content-type"], message["body"].encode())
    back = FORMAT.read(CloudEvent, raw)
    assert (back.get_attributes(), back.get_data()) == (made.get_attributes(), made.get_data())


@pytest.mark.parametrize("form", [binding.to_binary, binding.to_structured])
def test_an_event_says_when_it_is_due(rest: Rest, form: Any) -> None:
    assert sent(rest, form(event("a", tarrydue=DUE, tarrykey="k"), FORMAT)).json()["due_ms"] == DUE_MS
    found = rest.get("/v1/topics/orders/keys/k").json()
    assert found["due_ms"] == DUE_MS
    assert sent(rest, form(event("b", tarrydelay="1h"), FORMAT)).status_code == 201
    by_query = sent(rest, form(event("c"), FORMAT), f"{PLACE}?due_ms={DUE_MS}&tag=vip")
    assert by_query.json()["due_ms"] == DUE_MS
    under_key = rest.http.put(
        "/v1/topics/orders/keys/other",
        content=form(event("d", tarrydue=DUE), FORMAT).body,
        headers=form(event("d", tarrydue=DUE), FORMAT).headers,
    )
    assert under_key.status_code == 201
    pending = rest.get(PLACE).json()["messages"]
    assert len(pending) == 4
    assert not any(name.startswith("ce_tarry") for each in pending for name in each["properties"])


def test_data_of_other_types(rest: Rest) -> None:
    for number, (data, kind) in enumerate(((b"\x00\xff", "image/png"), ("grüße", "text/plain; charset=utf-8"))):
        for form in (binding.to_binary, binding.to_structured):
            made = event(f"{number}{form.__name__}", data=data, datacontenttype=kind)
            assert sent(rest, form(made, FORMAT)).status_code == 201
            [message] = rest.receive()
            assert message["properties"]["content-type"] == kind
            assert message.get("body", message.get("body_base64")) == ("AP8=" if isinstance(data, bytes) else data)


def test_while_a_batch_is_read_others_are_answered(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes of events take seconds, which nobody else should wait for."""
    begun, seen = threading.Event(), threading.Event()

    def read(raw: bytes) -> Any:
        begun.set()
        assert seen.wait(30), "others wait"
        return read_batch(raw)

    monkeypatch.setattr(cloud_events, "read_batch", read)
    events = json.dumps([{"specversion": "1.0", "id": str(n), "source": "/shop", "type": "paid"} for n in range(3)])
    answers: list[Any] = []
    sending = threading.Thread(
        target=lambda: answers.append(rest.http.post(PLACE, content=events, headers={"content-type": BATCH}))
    )
    sending.start()
    assert begun.wait(30)
    assert rest.get("/healthz").status_code == 200
    seen.set()
    sending.join(60)
    assert [answer.status_code for answer in answers] == [201]


def test_a_batch_is_scheduled_whole_or_not_at_all(rest: Rest) -> None:
    def post(*events: Any) -> Any:
        return rest.http.post(PLACE, content=json.dumps(events), headers={"content-type": BATCH})

    first, second = (json.loads(FORMAT.write(event(id, data="x", tarrydue=DUE))) for id in "ab")
    answer = post(first, second)
    assert answer.status_code == 201
    assert [(each["due_ms"], each["outcome"]) for each in answer.json()] == [(DUE_MS, "scheduled")] * 2
    assert rest.http.delete(f"/v1/messages/{answer.json()[1]['handle']}").json() == {"outcome": "done"}
    assert post().json() == []
    for bad in ({**second, "id": ""}, {**second, "tarrydue": "2999-01-01T00:00:00Z"}, {**second, "specversion": "0.3"}):
        refused = post({**first, "id": "c"}, bad)
        assert refused.status_code == 422 and "event 1: " in refused.json()["message"], refused.text
    assert rest.http.post(f"{PLACE}?delay=1h", content="[]", headers={"content-type": BATCH}).status_code == 400
    assert len(rest.get(PLACE).json()["messages"]) == 1


GOOD = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"ce-specversion": None}, "ce-id is given without ce-specversion"),
        ({"ce-specversion": "2.0"}, "specversion is '2.0'; allowed: '1.0'"),
        ({"ce-id": ""}, "id is ''"),
        ({"ce-source": None}, "source is missing"),
        ({"ce-source": "no%20uri"}, "source is 'no uri'; allowed: a URI"),
        ({"ce-time": "tomorrow"}, "time is 'tomorrow'; allowed: RFC 3339"),
        ({"ce-type": "a%0Ab"}, "no control characters"),
        ({"ce-subject": "%ff"}, "allowed: UTF-8, percent-encoded"),
        ({"ce-no_name": "x"}, "is no name of an attribute"),
        ({"ce-tarrydu": "1h"}, "allowed: tarrydue, tarrydelay, tarrykey"),
        ({"ce-tarrydue": DUE, "x-tarry-due": DUE}, "tarrydue and due are both given"),
        ({"ce-tarrydue": DUE, "x-tarry-delay": "1h"}, "allowed: one of them"),
        (
            {"ce-tarrydue": "2050-01-01T00:00:00"},
            "tarrydue: due is '2050-01-01T00:00:00'; allowed: ISO",
        ),
        ({"ce-tarrydelay": "soon"}, "tarrydelay: not a duration"),
        ({"ce-tarrydue": DUE, "ce-tarrydelay": "1h"}, "tarrydue and tarrydelay are both given"),
        ({"x-tarry-repeat": '{"every": "1h"}'}, "allowed: without repeat"),
        ({"content-type": "application/cloudevents+avro"}, "allowed: application/cloudevents+json"),
    ],
)
def test_refusals_in_binary_mode(rest: Rest, changed: dict[str, str | None], why: str) -> None:
    headers = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}
    refused = rest.http.post(PLACE, content=b"x", headers=headers)
    assert refused.status_code in (400, 415, 422), refused.text
    assert why in refused.json()["message"]


ATTRIBUTES = '"specversion":"1.0","id":"1","source":"/s","type":"t"'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON object"),
        ("[]", "no JSON object"),
        ("{}", "specversion is missing"),
        (f"{{{ATTRIBUTES}", "not JSON, at character"),
        (f"{{{ATTRIBUTES}}}x", "not JSON, at character"),
        (f'{{{ATTRIBUTES},"id":"2"}}', "id is given twice"),
        (f'{{{ATTRIBUTES},"data":1,"data_base64":"AA=="}}', "data and data_base64 are both given"),
        (f'{{{ATTRIBUTES},"data_base64":"%"}}', "allowed: base64"),
        (f'{{{ATTRIBUTES},"data":NaN}}', "not JSON"),
        (f'{{{ATTRIBUTES},"Upper":"x"}}', "is no name of an attribute"),
        (f'{{{ATTRIBUTES},"size":4294967296}}', "a whole number of 32 bits"),
        (f'{{{ATTRIBUTES},"deep":{{}}}}', "a text, true, false"),
        (f'{{{ATTRIBUTES},"data":{"[" * 100_000}}}', "not JSON"),
    ],
)
def test_refusals_in_structured_mode(text: str, why: str) -> None:
    with pytest.raises(InvalidMessageError, match=why.replace("(", r"\(")):
        read_json(text.encode())


def test_data_are_taken_as_they_stand() -> None:
    """Numbers that no float has, and a text in JSON, are not written anew."""
    data = '{"a": 1.10, "b": 12345678901234567890.5e400 , "c":"\\u00fc"}'
    for more in ("", ',"datacontenttype":"application/vnd.x+json"'):
        found = read_json(f'{{ "data" : {data} ,{ATTRIBUTES}{more}}}'.encode())
        assert found.data == data.encode()
        raw = to_json(found.attributes, found.content_type or "", found.data)
        assert f'"data":{data}' in raw.decode()
    assert read_json(f'{{{ATTRIBUTES},"data":"x"}}'.encode()).data == b'"x"'
    assert read_json(f'{{{ATTRIBUTES},"data":"x","datacontenttype":"text/plain"}}'.encode()).data == b"x"
    assert read_json(f'{{{ATTRIBUTES},"data":null}}'.encode()).data == b"null"
    assert [each.attributes["n"] for each in read_batch(f'[{{{ATTRIBUTES},"n":true}}]'.encode())] == ["true"]


@given(
    st.dictionaries(st.from_regex("x[a-z0-9]{0,19}", fullmatch=True), st.text(min_size=1), max_size=4),
    st.binary(max_size=50),
    st.sampled_from(["application/json", "text/plain", "image/png", "application/vnd.x+json"]),
)
def test_whatever_is_written_is_read_by_the_reference(more: dict[str, str], data: bytes, kind: str) -> None:
    given = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **more}
    time = datetime(2030, 1, 1, tzinfo=UTC)  # one without a time is given that of its reading
    try:
        "".join(more.values()).encode()
    except UnicodeEncodeError:
        return
    raw = to_json({**given, "time": time.isoformat()}, kind, data)
    back = FORMAT.read(CloudEvent, raw)
    assert back.get_attributes() == {**given, "datacontenttype": kind, "time": time}
    found = back.get_data()
    if isinstance(found, bytes):
        assert found == data
    elif isinstance(found, str) and kind == "text/plain":
        assert found == data.decode()
    else:
        assert found == (json.loads(data) if data else None)
