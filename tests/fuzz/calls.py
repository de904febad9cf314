"""Calls that are nearly right: Flight by pyarrow, Flight by raw messages of gRPC, RocketMQ's gRPC by mutated protobuf.

A call is answered or refused. A refusal of a Flight call that pyarrow can send has a code of Tarry's errors.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl

from tarry.api.operation import Action, Rows
from tarry.api.operations import OPERATIONS
from tarry.api.wire import decode_error
from tarry.fronts.rocketmq.common.stubs import service as s
from tarry.fronts.rocketmq.v5.service import NAME
from tests.fuzz.mutation import ODD_NUMBERS, ODD_VALUES, mutated, mutated_fields, protobuf
from tests.rocketmq import rpc

CALL_S = 5.0
FLIGHT = "arrow.flight.protocol.FlightService"
GOOD_FIELDS: dict[str, Any] = {
    "topic": "t",
    "group": "g",
    "handles": ["x"],
    "handle": "x",
    "keys": ["k"],
    "key": "k",
    "due_ms": 1,
    "delay_ms": 1,
    "leases": [1],
    "offsets": [0],
    "lease_ms": 1000,
    "tries": 3,
    "filter": "a",
    "start": "earliest",
    "limit": 10,
    "max_messages": 3,
    "unit": "hour",
    "what": "x",
    "job": "j",
    "number": 1,
    "rows": 1,
    "files": [],
    "topics": {},
    "offset": 0,
    "end": 5,
    "late": "now",
    "retry": "fixed 1s",
    "to": "earliest",
    "attempt": "a",
    "cursor": "x",
}
QUIET = {"pipeline-status"}
"""It takes any status, and the broker shows it."""
TYPES = (pa.string(), pa.binary(), pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.list_(pa.int64()), pa.null())


class FlightCalls:
    """By pyarrow: any action, ticket, descriptor, schema and metadata."""

    def __init__(self, address: str) -> None:
        self._client = fl.FlightClient(f"grpc://{address}")
        self._actions = [o for o in OPERATIONS if isinstance(o.wire, Action) and o.wire.name not in QUIET]
        self._tickets = [o for o in OPERATIONS if isinstance(o.wire, Rows)]
        self._options = fl.FlightCallOptions(timeout=CALL_S)

    def close(self) -> None:
        self._client.close()

    def action(self, rng: random.Random) -> str:
        kind = rng.choice(self._actions)
        body = self._body(kind, rng)
        return f"action {kind.wire.name} {body!r}: " + self._code(
            lambda: list(self._client.do_action(fl.Action(kind.wire.name, body), self._options))
        )

    def ticket(self, rng: random.Random) -> str:
        kind = rng.choice(self._tickets)
        body = self._body(kind, rng, op=kind.wire.name)
        return f"ticket {body!r}: " + self._code(lambda: self._client.do_get(fl.Ticket(body), self._options).read_all())

    def put(self, rng: random.Random) -> str:
        """Batches of any columns to the path ``schedule``, to a bulk job, or to somewhere else."""
        descriptor = rng.choice(
            [
                fl.FlightDescriptor.for_path("schedule"),
                fl.FlightDescriptor.for_path(rng.choice(["", "schedule", "x"]), "y"),
                fl.FlightDescriptor.for_command(json.dumps({"op": "bulk-stage", "number": rng.choice([0, 1, 7])})),
                fl.FlightDescriptor.for_command(mutated(b'{"op": "bulk-stage", "number": 1}', rng)),
            ]
        )
        batch = random_batch(rng)
        metadata = rng.choice([None, b"", rng.randbytes(20)])

        def put() -> None:
            writer, reader = self._client.do_put(descriptor, batch.schema, self._options)
            try:
                for _ in range(rng.randint(0, 3)):
                    writer.write_with_metadata(batch, metadata) if metadata is not None else writer.write_batch(batch)
                if metadata is not None and rng.random() < 0.3:
                    writer.write_metadata(metadata)
                writer.done_writing()
                while reader.read() is not None:
                    pass
            finally:
                writer.close()

        return f"put {descriptor} {batch.schema.names}: " + self._code(put)

    def _body(self, kind: Any, rng: random.Random, **more: Any) -> bytes:
        fields = {name: GOOD_FIELDS.get(name, 1) for name in kind.wire_fields() or {} if rng.random() < 0.8} | more
        text = json.dumps(mutated_fields(fields, rng)).encode()
        return mutated(text, rng) if rng.random() < 0.3 else text

    def _code(self, call: Callable[[], object]) -> str:
        try:
            call()
        except fl.FlightTimedOutError:
            return "timed out"
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            if _by_pyarrow(error):
                return "refused by pyarrow"
            code = decode_error(getattr(error, "extra_info", b"") or b"{}").code
            assert "internal error" not in str(error), error
            return code
        return "answered"


def _by_pyarrow(error: Exception) -> bool:
    """Refused by pyarrow, in this process or in the server's, before Tarry sees the call."""
    return not getattr(error, "extra_info", b"")


def random_batch(rng: random.Random) -> pa.RecordBatch:
    """Messages whose columns may be missing, of another type, or have odd values."""
    good = {"topic": "t", "body": b"x", "delay_ms": 5, "id": "i", "key": "k", "tag": "a", "tries": 2, "ttl_ms": 9}
    rows = rng.choice([0, 1, 3])
    names = [name for name in (*good, "due_ms", "properties", "surplus", "topic") if rng.random() < 0.5] or ["topic"]
    columns = []
    for name in names:
        values = [good.get(name, 1)] * rows
        if rng.random() < 0.3:
            values = [rng.choice([*ODD_VALUES[:6], *ODD_NUMBERS[:11]]) for _ in range(rows)]
        try:
            columns.append(pa.array(values) if rng.random() < 0.5 else pa.array(values, rng.choice(TYPES)))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            columns.append(pa.nulls(rows))
    return pa.RecordBatch.from_arrays(columns, names=names)


class RawFlight:
    """Flight's messages by hand, with mutations: descriptors, Arrow's own headers and bodies."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        schema = pa.schema([("topic", pa.string()), ("body", pa.binary()), ("delay_ms", pa.int64())])
        batch = pa.RecordBatch.from_pydict(
            {"topic": ["t", "t"], "body": [b"x", b"y"], "delay_ms": [1, 2]}, schema=schema
        )
        path = protobuf({1: 1, 3: b"schedule"})
        self._put = [protobuf({1: path, 2: _header(schema.serialize())}), _data(batch)]

    def close(self) -> None:
        self._channel.close()

    def stream(self, rng: random.Random) -> str:
        """A stream of messages, of which some are mutated, doubled or missing; Tarry does not have each method."""
        method, frames = rng.choice(["DoPut", "DoPut", "DoExchange"]), self._put * rng.choice([1, 1, 2])
        sent = [mutated(f, rng) if rng.random() < 0.6 else f for f in frames if rng.random() < 0.95]
        call = self._channel.stream_stream(f"/{FLIGHT}/{method}", _same, _same)
        return f"{method} {[frame.hex() for frame in sent]}: " + _status(lambda: list(call(iter(sent), timeout=CALL_S)))

    def unary(self, rng: random.Random) -> str:
        """Each other method of Flight, also those that Tarry does not have."""
        methods = (
            "DoGet",
            "DoAction",
            "ListFlights",
            "GetFlightInfo",
            "GetSchema",
            "ListActions",
            "Handshake",
            "PollFlightInfo",
        )
        method = rng.choice(methods)
        sent = mutated(protobuf({1: b"ping", 2: b"{}"}), rng)
        if method == "Handshake":
            both = self._channel.stream_stream(f"/{FLIGHT}/{method}", _same, _same)
            return f"{method} {sent.hex()}: " + _status(lambda: list(both(iter([sent]), timeout=CALL_S)))
        call = self._channel.unary_stream(f"/{FLIGHT}/{method}", _same, _same)
        return f"{method} {sent.hex()}: " + _status(lambda: list(call(sent, timeout=CALL_S)))


class RocketMQ:
    """RocketMQ's v5 protocol: each method, with mutated messages."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        message = rpc.message("t", b"x", due_ms=int(time.time() * 1000) + 500, properties={"a": "b"}, tag="c")
        self._metadata = [("x-mq-client-id", "fuzz"), ("x-mq-language", "PYTHON")]
        receive = rpc.receive_request("t", "g", wait_s=0.1)
        self._good: dict[str, Any] = {
            "SendMessage": s.SendMessageRequest(messages=[message, message]),
            "ReceiveMessage": receive,
            "QueryRoute": s.QueryRouteRequest(topic=rpc.res("t")),
            "Heartbeat": s.HeartbeatRequest(group=rpc.res("g")),
            "QueryAssignment": s.QueryAssignmentRequest(topic=rpc.res("t"), group=rpc.res("g")),
            "AckMessage": s.AckMessageRequest(
                topic=rpc.res("t"), group=rpc.res("g"), entries=[s.AckMessageEntry(message_id="m", receipt_handle="h")]
            ),
            "ForwardMessageToDeadLetterQueue": s.ForwardMessageToDeadLetterQueueRequest(
                topic=rpc.res("t"), group=rpc.res("g"), receipt_handle="h", message_id="m", delivery_attempt=1
            ),
            "EndTransaction": s.EndTransactionRequest(topic=rpc.res("t"), message_id="m", transaction_id="x"),
            "ChangeInvisibleDuration": s.ChangeInvisibleDurationRequest(
                topic=rpc.res("t"), group=rpc.res("g"), receipt_handle="h", message_id="m"
            ),
            "NotifyClientTermination": s.NotifyClientTerminationRequest(group=rpc.res("g")),
            "RecallMessage": s.RecallMessageRequest(topic=rpc.res("t"), recall_handle="h"),
            "Telemetry": s.TelemetryCommand(settings=rpc.producer("t")),
        }
        self._streams = {"ReceiveMessage": self._channel.unary_stream, "Telemetry": self._channel.stream_stream}

    def close(self) -> None:
        self._channel.close()

    def call(self, rng: random.Random) -> str:
        method, request = rng.choice(list(self._good.items()))
        sent = mutated(request.SerializeToString(), rng)
        metadata = [(name, value) for name, value in self._metadata if rng.random() < 0.95]
        make = self._streams.get(method, self._channel.unary_unary)
        call: Any = make(f"/{NAME}/{method}", _same, _same)
        given = iter([sent]) if method == "Telemetry" else sent
        return f"{method} {sent.hex()}: " + _status(lambda: _read(call(given, metadata=metadata, timeout=CALL_S)))


def _header(encapsulated: pa.Buffer) -> bytes:
    """The metadata of an Arrow message, without the length before it and the body behind it."""
    raw = bytes(encapsulated)
    return raw[8 : 8 + int.from_bytes(raw[4:8], "little")]


def _data(batch: pa.RecordBatch) -> bytes:
    raw, header = bytes(batch.serialize()), _header(batch.serialize())
    return protobuf({2: header, 3: b"", 1000: raw[8 + len(header) :]})


def _same(data: bytes) -> bytes:
    return data


def _read(answer: Any) -> object:
    return answer if isinstance(answer, bytes) else list(answer)


def _status(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        code = error.code()  # type: ignore[attr-defined]
        assert code not in (grpc.StatusCode.UNAVAILABLE,) or "refused" not in str(error), f"nobody listens: {error}"
        return str(code.name)
    return "answered"
