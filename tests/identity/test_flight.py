"""Arrow Flight asks for a token with each call: before the first message is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.identity.conftest import Known
from tests.waiting import wait_until

from tarry.api.identities import ANONYMOUS
from tarry.api.wire import decode_answer, decode_error
from tarry.broker import Broker
from tarry.errors import TarryError
from tarry.fronts.flight import service
from tarry.fronts.flight.front import FlightFront

SCHEDULE = fl.FlightDescriptor.for_path("schedule")
SCHEMA = pa.schema([("topic", pa.string()), ("body", pa.binary()), ("delay_ms", pa.int64())])


@pytest.fixture
def flight(known: Known) -> Iterator[fl.FlightClient]:
    front = FlightFront.start(known.broker, "127.0.0.1:0")
    with fl.FlightClient(f"grpc://{front.address}") as client:
        yield client
    front.stop()


def shown(token: str, scheme: bytes = b"Bearer") -> fl.FlightCallOptions:
    return fl.FlightCallOptions(headers=[(b"authorization", scheme + b" " + token.encode())], timeout=20)


def ticket(**values: object) -> fl.Ticket:
    return fl.Ticket(json.dumps(values).encode())


def batch(topic: str) -> pa.RecordBatch:
    return pa.record_batch([[topic], [b"x"], [60_000]], schema=SCHEMA)


def calls(flight: fl.FlightClient, options: fl.FlightCallOptions) -> Iterator[object]:
    """One call of each kind, as functions."""
    yield lambda: list(flight.do_action("ping", options))
    yield lambda: flight.list_actions(options)
    yield lambda: flight.do_get(ticket(op="receive", topic="orders.a", group="billing"), options).read_all()
    yield lambda: put(flight, options, "orders.a")


def put(flight: fl.FlightClient, options: fl.FlightCallOptions, topic: str) -> object:
    writer, reader = flight.do_put(SCHEDULE, SCHEMA, options)
    writer.write_batch(batch(topic))
    answer = reader.read()
    if answer is None:
        writer.close()
        return None
    found = decode_answer(answer.to_pybytes())
    writer.close()
    if isinstance(found, TarryError):
        raise found
    return found


def test_each_call_shows_who_it_is_of(known: Known, flight: fl.FlightClient) -> None:
    wrong = [
        fl.FlightCallOptions(),
        shown("tarry_x"),
        shown(known.billing, b"Basic"),
        shown(known.billing[1:]),
    ]
    for options in wrong:
        for call in calls(flight, options):
            with pytest.raises(fl.FlightUnauthenticatedError, match="token") as caught:
                call()  # type: ignore[operator]
            assert decode_error(caught.value.extra_info).code == "unauthenticated"
    for call in calls(flight, shown(known.billing)):
        call()  # type: ignore[operator]


def test_rights_are_those_of_the_identity(known: Known, flight: fl.FlightClient) -> None:
    options = shown(known.billing)
    with pytest.raises(TarryError, match="billing has not the right produce on topic 'secret'"):
        put(flight, options, "secret")
    for refused in (
        lambda: list(flight.do_action(fl.Action("identities", b""), options)),
        lambda: list(flight.do_action(fl.Action("purge", b'{"topic": "orders.a", "group": "billing"}'), options)),
        lambda: flight.do_get(ticket(op="receive", topic="orders.a", group="other"), options).read_all(),
        lambda: flight.do_get(ticket(op="intake", start=0, end=10), options).read_all(),
        lambda: flight.do_put(fl.FlightDescriptor.for_command(b'{"op": "bulk-stage", "number": 1}'), SCHEMA, options)[
            0
        ].close(),
    ):
        with pytest.raises(fl.FlightUnauthorizedError, match="billing has not the right") as caught:
            refused()
        assert decode_error(caught.value.extra_info).code == "forbidden"
    assert known.broker.pending() == []


def test_a_stream_of_a_removed_credential_takes_nothing_more(known: Known, flight: fl.FlightClient) -> None:
    [credential] = next(each for each in known.broker.list_identities() if each.name == "billing").credentials
    writer, reader = flight.do_put(SCHEDULE, SCHEMA, shown(known.billing))
    writer.write_batch(batch("orders.a"))
    assert reader.read() is not None
    known.broker.remove_credential(credential.id)
    wait_until(lambda: "removed" in str(decode_answer(reader.read().to_pybytes())))  # the goodbye
    writer.write_batch(batch("orders.a"))
    answer = decode_answer(reader.read().to_pybytes())
    assert isinstance(answer, TarryError)
    assert answer.code == "unauthenticated"
    writer.close()
    assert sum(each.pending for each in known.broker.pending()) == 1


def remove_credential(broker: Broker) -> None:
    [credential] = next(each for each in broker.list_identities() if each.name == "billing").credentials
    broker.remove_credential(credential.id)


CHANGES: dict[str, Callable[[Broker], object]] = {
    "unauthenticated": remove_credential,
    "unavailable": lambda broker: broker.set_identity("billing", ["produce orders.*"]),
    ANONYMOUS: lambda broker: broker.delete_identity(ANONYMOUS),
}


def receiving(flight: fl.FlightClient, options: fl.FlightCallOptions, wait_ms: int = 60_000) -> list[bytes]:
    asked = ticket(op="receive", topic="orders.a", group="billing", wait_ms=wait_ms)
    found: list[bytes] = flight.do_get(asked, options).read_all().column("body").to_pylist()
    return found


def waits(broker: Broker) -> bool:
    return any(group.group == "billing" for group in broker.groups("orders.a"))


@pytest.mark.parametrize("change", CHANGES)
def test_a_receive_that_waits_ends_with_its_callers_rights(known: Known, flight: fl.FlightClient, change: str) -> None:
    known.broker.set_identity(ANONYMOUS, ["consume orders.*"])
    options = fl.FlightCallOptions(timeout=60) if change == ANONYMOUS else shown(known.billing)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(receiving, flight, options)
        wait_until(lambda: waits(known.broker))
        CHANGES[change](known.broker)
        with pytest.raises((fl.FlightUnauthenticatedError, fl.FlightUnavailableError)) as caught:
            asked.result(timeout=15)
    code = "unauthenticated" if change == ANONYMOUS else change
    assert decode_error(caught.value.extra_info).code == code
    known.broker.schedule("orders.a", b"x")
    assert receiving(flight, shown(known.admin)) == [b"x"], "it was handed to nobody"


def test_receives_that_wait_count_as_connections(known: Known, flight: fl.FlightClient) -> None:
    known.broker.set_identity("billing", ["consume orders.*"], quotas={"connections": 1})
    token = known.broker.add_credential("billing").secret
    asked = ticket(op="receive", topic="orders.a", group="billing", wait_ms=60_000)
    first = flight.do_get(asked, shown(token))
    wait_until(lambda: waits(known.broker))
    with pytest.raises(fl.FlightServerError, match="connections") as caught:
        receiving(flight, shown(token))
    assert decode_error(caught.value.extra_info).code == "quota_exceeded"
    assert receiving(flight, shown(token), 0) == [], "one that does not wait is none"
    known.broker.schedule("orders.a", b"x")
    assert first.read_all().num_rows == 1
    wait_until(lambda: receiving(flight, shown(token), 1) == [])


def test_the_wait_is_bounded(known: Known, flight: fl.FlightClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "WAIT_S_MAX", 0.01)
    assert receiving(flight, shown(known.billing), 10**13) == []
