"""What becomes of a task's message: its due time, its key, and what a worker gets of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tarry.base.errors import InvalidArgumentError
from tarry.celery.envelope import LONG_AGO, SERIES, decode, message_of, row_of
from tarry.celery.places import exchange_topic, places_of, priority_topic
from tarry.repeat import Repeat
from tests.celery_project.place import as_celery_sends
from tests.contract.conftest import Served


def test_a_task_with_an_eta_waits_under_its_id() -> None:
    due = datetime(2027, 1, 1, tzinfo=UTC)
    row = row_of(as_celery_sends(eta=due.isoformat()))
    assert (row["due"], row["key"]) == (due, "t-1")
    assert {"due", "key"}.isdisjoint(row_of(as_celery_sends()))


def test_an_eta_without_a_zone_is_in_utc() -> None:
    assert row_of(as_celery_sends(eta="2027-01-01T00:00:00"))["due"] == datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("eta", [datetime.min, datetime(1969, 7, 20, tzinfo=UTC), datetime(1999, 12, 31, tzinfo=UTC)])
def test_an_eta_of_long_ago_is_due(eta: datetime) -> None:
    """The broker has no times before 1970; with Celery's other brokers such a task runs at once."""
    assert row_of(as_celery_sends(eta=eta.isoformat()))["due"] == LONG_AGO


def test_a_series_begins_when_it_is_told() -> None:
    message = as_celery_sends(eta="2027-01-01T00:00:00")
    message["properties"] |= {"tarry_repeat": Repeat.every("1s")}
    assert "due" not in row_of(message), "an eta is of one occurrence"
    message["properties"] |= {"tarry_due": datetime(2028, 1, 1, tzinfo=UTC)}
    assert row_of(message)["due"] == datetime(2028, 1, 1, tzinfo=UTC)


def test_options_are_tarrys_and_travel_no_further() -> None:
    message = as_celery_sends()
    message["properties"] |= {"tarry_key": "cart", "tarry_tag": "eu"}
    row = row_of(message)
    assert (row["key"], row["tag"]) == ("cart", "eu")
    assert "tarry_key" not in decode(row["body"].encode())["properties"]
    assert message["properties"]["tarry_key"] == "cart", "kombu tries again with the same message"


@pytest.mark.parametrize(("more", "wrong"), [({"tarry_keys": "x"}, "tarry_keys"), ({}, "eta is 'soon'")])
def test_what_is_wrong_is_refused(more: dict[str, str], wrong: str) -> None:
    message = as_celery_sends(eta="soon")
    message["properties"] |= more
    with pytest.raises(InvalidArgumentError, match=wrong):
        row_of(message)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"", "JSONDecodeError"),
        (b"\xff", "UnicodeDecodeError"),
        (b"[" * 100_000, "RecursionError"),
        (b'{"__type__": "decimal", "__value__": "x"}', "InvalidOperation"),
        (b"[]", "no object"),
        (b'{"a": 1}', "properties is no object"),
        (b'{"properties": {}}', "body is no text"),
        (b'{"properties": {}, "body": 1}', "body is no text"),
        (b'{"properties": {}, "body": "", "headers": [1]}', "headers is no object"),
        (b'{"properties": {"delivery_info": null}, "body": ""}', "delivery_info is no object"),
        (b'{"properties": {}, "body": "", "content-type": 1}', "content-type is no text"),
        (b'{"properties": {}, "body": "", "headers": {"task": "shop.note"}}', "id is no text"),
        (b'{"properties": {}, "body": "", "headers": {"task": [], "id": "1"}}', "task is no text"),
        (b'{"properties": {"body_encoding": "hex"}, "body": ""}', "body_encoding is 'hex', not base64"),
        (b'{"properties": {"body_encoding": "base64"}, "body": "abc"}', "body is no base64"),
    ],
)
def test_what_is_no_message_of_kombu_says_so(content: bytes, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        decode(content)


def test_occurrences_are_tasks_of_their_own(tmp_path: Path) -> None:
    """Each has another id, the same one at each try; and it expires so long after it was due."""
    served = Served(tmp_path / "data")
    try:
        message = as_celery_sends(expires=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
        message["properties"]["tarry_repeat"] = Repeat.every("1s")
        row = row_of(message)
        assert SERIES in row["properties"]
        served.broker.schedule("celery", **row)
        ids = []
        from tarry.client import Client

        with Client(served.address) as client:
            for delivery in client.consume("celery", group="celery", timeout=30):
                found = message_of(delivery)
                assert found["properties"]["correlation_id"] == found["headers"]["id"] == found["headers"]["root_id"]
                expires = datetime.fromisoformat(found["headers"]["expires"])
                assert timedelta(minutes=59) < expires - delivery.due <= timedelta(hours=1)
                assert message_of(delivery)["headers"]["id"] == found["headers"]["id"]
                ids.append(found["headers"]["id"])
                delivery.ack()
                if len(ids) == 2:
                    break
        assert len({*ids, "t-1"}) == 3
    finally:
        served.stop()


def test_places() -> None:
    assert [each.topic for each in places_of("mail", "celery", 9)] == ["mail|9", "mail|6", "mail|3", "mail"]
    assert [each.topic for each in places_of("mail", "celery", 0)] == ["mail"]
    assert [priority_topic("m", each) for each in (0, 2, 3, 5, 8, 9)] == ["m", "m", "m|3", "m|3", "m|6", "m|9"]
    assert exchange_topic("a@b.pidbox") == "celery.exchange/a%40b.pidbox"
