"""What is asked in JSON is refused by its size, before anything is made of it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.contract.conftest import Served

from tarry.api.wire import JSON_BYTES_MAX, JSON_VALUES_MAX, decode_error, decode_request
from tarry.base.errors import InvalidArgumentError, MessageTooLargeError
from tarry.client import Client

LARGE = b'{"handles":[' + b"[]," * (JSON_BYTES_MAX // 3) + b"[]]}"
MANY = b'{"handles":[' + b"[]," * JSON_VALUES_MAX + b"[]]}"


def refused(call: Any) -> str:
    with pytest.raises(fl.FlightServerError) as caught:
        call()
    error = decode_error(caught.value.extra_info)
    assert type(error) is MessageTooLargeError
    return str(error)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    read = json.loads

    def loads(text: str) -> Any:
        assert len(text) < 10_000, "it is read, whatever its size"
        return read(text)

    monkeypatch.setattr("tarry.api.wire.json.loads", loads)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("body", [LARGE, MANY], ids=["bytes", "values"])
def test_json_that_is_too_much_is_never_read(served: Served, body: bytes) -> None:
    flight, descriptor = fl.connect(f"grpc://{served.address}"), fl.FlightDescriptor.for_command(body)
    assert "allowed: " in refused(lambda: list(flight.do_action(fl.Action("cancel", body))))
    assert "allowed: " in refused(lambda: flight.do_get(fl.Ticket(body)).read_all())

    def put() -> None:
        writer, reader = flight.do_put(descriptor, pa.schema([]))
        writer.done_writing()
        reader.read()
        writer.close()

    assert "allowed: " in refused(put)


def test_what_is_allowed() -> None:
    handles = ["h" * 50] * 65_536
    assert decode_request(json.dumps({"handles": handles}).encode()) == {"handles": handles}
    assert decode_request(memoryview(b'{"a":1}')) == {"a": 1}
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        decode_request(b"{")


def test_long_keys_are_cancelled_in_several_requests(client: Client) -> None:
    keys = [f"{number:\u00e9>127}" for number in range(12_000)]
    client.schedule("t", b"", key=keys[-1], delay="1h")
    outcomes = client.cancel_keys("t", keys)
    assert len(outcomes) == len(keys)
    assert outcomes[-1].name == "DONE"
