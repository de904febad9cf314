"""The calls that the pipeline makes on a broker, over Arrow Flight."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from tarry.base.errors import CorruptError, TarryError, UnavailableError, from_wire

CALL_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 3600.0
"""For all of one range; a broker that hangs must not hang the pipeline for ever."""


@dataclass(frozen=True, slots=True)
class IntakeState:
    """What the broker says of its intake; seqs are exclusive ends, times UTC milliseconds of the broker's clock.

    Every message with ``due_ms < fired_until_ms`` and ``seq < fired_seq`` is durably in the ready log: the store does
    not need it. Of the store's files, none that ends before ``expire_until_ms`` is needed any more, and of the bulk
    jobs ``cancelled_jobs`` (``[number, due_ms, seq]``) no row from that place on.
    """

    first_seq: int
    durable_seq: int
    committed_seq: int
    waiting_bytes: int
    oldest_ms: int | None
    fired_until_ms: int
    fired_seq: int
    expire_until_ms: int
    cancelled_jobs: list[list[int]]
    now_ms: int
    shard: int
    store_uri: str


class IntakeClient:
    """A connection to a broker at ``HOST:PORT``. Connects with the first call. Use it in the process that made it.

    Every call raises what the broker reported (:mod:`tarry.base.errors`), or UnavailableError where it cannot be
    reached.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        with self._errors():
            self._flight = flight.FlightClient(f"grpc://{address}")

    def state(self) -> IntakeState:
        """Where intake, store and delivery are."""
        answer = self._act("intake-state", {})
        missing = [f.name for f in fields(IntakeState) if f.name not in answer]
        if missing:
            raise CorruptError(f"the intake state from {self._address} lacks {missing[0]!r}; given: {sorted(answer)}")
        return IntakeState(**{f.name: answer[f.name] for f in fields(IntakeState)})

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The messages of ``[start, end)`` in seq order."""
        ticket = flight.Ticket(json.dumps({"op": "intake", "start": start, "end": end}).encode())
        with self._errors():
            reader = self._flight.do_get(ticket, flight.FlightCallOptions(timeout=READ_TIMEOUT_S))
            for chunk in reader:
                if chunk.data is not None:
                    yield chunk.data

    def store_committed(self) -> None:
        """Tell that the store has a new version, durably."""
        self._act("store-committed", {})

    def report(self, status: dict[str, Any]) -> None:
        """Tell how the pipeline is."""
        self._act("pipeline-status", status)

    def close(self) -> None:
        """Drop the connection."""
        self._flight.close()

    def __enter__(self) -> IntakeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _act(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        action = flight.Action(name, json.dumps(body).encode())
        with self._errors():
            results = list(self._flight.do_action(action, flight.FlightCallOptions(timeout=CALL_TIMEOUT_S)))
        return dict(json.loads(results[0].body.to_pybytes() or b"{}")) if results else {}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except flight.FlightError as error:
            raise self._translated(error) from error
        except pa.ArrowException as error:
            raise UnavailableError(f"the broker at {self._address} cannot be reached: {_first_line(error)}") from error

    def _translated(self, error: flight.FlightError) -> TarryError:
        try:
            told = json.loads(error.extra_info)
            return from_wire(told["code"], told["message"])
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        if isinstance(error, (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)):
            return UnavailableError(f"the broker at {self._address} cannot be reached: {_first_line(error)}")
        return TarryError(f"the broker at {self._address} failed: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
