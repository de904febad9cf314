"""Server-sent events: messages as they fall due, what a client that comes back gets, and who leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tarry.fronts.http.rest import events
from tests.http.rest import Rest
from tests.waiting import wait_until

GROUP = "/v1/topics/orders/groups/g"


class Stream:
    """The events of one connection."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def event(self) -> dict[str, Any]:
        """The next event, or comment."""
        fields: dict[str, Any] = {}
        for line in self._lines:
            if not line and fields:
                if "data" in fields:
                    fields["data"] = json.loads(fields["data"])
                return fields
            name, _, value = line.partition(": ")
            fields[name] = value
        raise EOFError

    def message(self) -> dict[str, Any]:
        """The next event that is a message; its id is ``event_id``."""
        while (event := self.event()).get("event") != "message":
            pass
        data: dict[str, Any] = event["data"]
        return {**data, "event_id": event["id"]}


@contextmanager
def events_of(rest: Rest, query: str = "", last: str | None = None) -> Iterator[Stream]:
    headers = {} if last is None else {"last-event-id": last}
    with rest.http.stream("GET", f"{GROUP}/events{query}", headers=headers) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        yield Stream(answer)


def ack(rest: Rest, *messages: dict[str, Any]) -> None:
    answer = rest.post(f"{GROUP}/ack", {"deliveries": [message["delivery"] for message in messages]})
    assert answer.json() == {"settled": len(messages)}


def test_messages_come_as_they_fall_due_and_are_settled_beside(rest: Rest) -> None:
    with events_of(rest) as stream:
        stream.event()
        rest.schedule(b"line\nbreak \xc3\xbc", delay_ms=50)
        first = stream.message()
        rest.schedule(b"\xff")
        second = stream.message()
        assert (first["body"], second["body_base64"]) == ("line\nbreak ü", "/w==")
        ack(rest, first, second)
        assert rest.get(GROUP).json()["leased"] == 0


def test_no_more_than_prefetch_are_out_and_an_ack_makes_room(rest: Rest) -> None:
    for number in range(5):
        rest.schedule(str(number).encode())
    with events_of(rest, "?prefetch=2") as stream:
        held = [stream.message(), stream.message()]
        assert rest.get(GROUP).json()["leased"] == 2
        other = rest.receive(max_messages=1)
        assert len(other) == 1, "who is full holds nobody up"
        ack(rest, held[0])
        assert stream.message()["body"] not in {held[0]["body"], held[1]["body"], other[0]["body"]}


def test_who_comes_back_keeps_what_it_got_and_gets_again_what_it_did_not(rest: Rest) -> None:
    for number in range(3):
        rest.schedule(str(number).encode())
    with events_of(rest) as stream:
        sent = [stream.message() for _ in range(3)]
    with events_of(rest, last=sent[0]["event_id"]) as stream:
        again = [stream.message(), stream.message()]
        assert {m["body"] for m in again} == {m["body"] for m in sent[1:]}
        assert {m["attempt"] for m in again} == {2}
        assert again[0]["event_id"].partition(".")[0] == sent[0]["event_id"].partition(".")[0]
        ack(rest, sent[0], *again)


def test_a_second_connection_takes_the_stream_over(rest: Rest) -> None:
    rest.schedule(b"0")
    with events_of(rest) as former:
        first = former.message()
        with events_of(rest, last=first["event_id"]) as stream:
            with pytest.raises(EOFError):
                while True:
                    former.event()
            rest.schedule(b"1")
            assert stream.message()["body"] == "1"


def test_leases_end_also_while_a_consumer_is_full(rest: Rest) -> None:
    rest.schedule(b"0")
    with events_of(rest, "?prefetch=1&lease_ms=300") as stream:
        assert stream.message()["attempt"] == 1
        assert stream.message()["attempt"] == 2


def test_a_quiet_stream_is_told_that_the_broker_is_there(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "ALIVE_S", 0.05)
    with events_of(rest) as stream:
        stream.event()
        assert stream.event() == {"": "still here"}


def test_the_stream_of_a_group_that_is_deleted_says_so(rest: Rest) -> None:
    with events_of(rest) as stream:
        stream.event()
        assert rest.http.delete(GROUP).status_code == 200
        while "event" not in (event := stream.event()):
            pass
        assert (event["event"], event["data"]["error"]) == ("error", "not_found")


def test_who_leaves_a_receive_takes_nothing_along(rest: Rest) -> None:
    with pytest.raises(httpx.ReadTimeout):
        rest.http.post(f"{GROUP}/receive?wait_ms=60000", timeout=0.3)
    rest.schedule(b"0")
    [message] = rest.receive()
    assert message["body"] == "0"


def test_broadcast_and_bad_requests(rest: Rest) -> None:
    with events_of(rest, "?broadcast=me") as stream:
        stream.event()
        wait_until(lambda: any(group["group"] == "g@me" for group in rest.get("/v1/groups").json()))
        rest.schedule(b"all")
        assert stream.message()["body"] == "all"
    assert rest.get(f"{GROUP}/events?prefetch=0").status_code == 400
    assert rest.get(f"{GROUP}/events", headers={"accept": "application/json"}).status_code == 406
    assert rest.http.head(f"{GROUP}/events").status_code == 200
