"""A Flight connection to one broker: options, one-shot calls, and what pyarrow's errors mean."""

from __future__ import annotations

import logging
import re
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from tarry.api.wire import as_bytes, decode_error, decode_json, encode_json
from tarry.base.endpoint import parse_address
from tarry.base.errors import ClosedError, InvalidArgumentError, TarryError, UnavailableError

log = logging.getLogger(__name__)

FLIGHT_ERRORS = (pa.ArrowException, OSError)
"""Exceptions that pyarrow raises when a call fails."""

_OPTIONS: list[tuple[str, int]] = [
    # How long a try to connect may take; gRPC's default is 20 s.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # Without it, a new client would share the old one's back-off; see Connection._renew.
    ("grpc.use_local_subchannel_pool", 1),
]
# A server cuts off a client that pings more often than every 5 minutes, unless it sends something itself in between. To
# a consumer it does, every 10 s. So a consumer, which mostly waits, finds out within 30 s that a broker is gone
# without a word; a producer finds out when it sends.
_WAITING: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


class BrokerConnection:
    """Thread-safe; connects when it is first used, and again when it must."""

    def __init__(self, address: str, *, waiting: bool = False) -> None:
        """Make a connection, which connects when first used.

        ``waiting``: for a stream that mostly listens; it gets a connection of its own.

        Raises:
            InvalidArgumentError: ``address`` is not HOST:PORT.
        """
        host, port = parse_address(address)
        self.address = address
        self._location = f"grpc://{host}:{port}"
        self._options = [*_OPTIONS, *(_WAITING if waiting else [])]
        self._closed = False
        self._renew()

    def _renew(self) -> None:
        # After a failed try to connect, gRPC refuses all calls until its back-off is over, even if the broker is there
        # by then. Whoever calls next shall try. Open streams stay open: they hold what they need of the old client.
        self.flight = fl.FlightClient(self._location, generic_options=self._options)

    def action(self, name: str, body: Any = None, *, timeout_s: float | None = None) -> Any:
        """Call DoAction; its JSON result.

        Raises:
            TarryError: what the broker said. UnavailableError: it said nothing. InvalidArgumentError: there is no JSON
            for ``body``.
        """
        self.check_open()
        raw = b"" if body is None else _encoded(body)
        options = fl.FlightCallOptions(timeout=timeout_s)
        try:
            results = list(self.flight.do_action(fl.Action(name, raw), options))
        except FLIGHT_ERRORS as error:
            raise self.translate(error) from error
        return decode_json(as_bytes(results[0].body)) if results else None

    def read(self, ticket: dict[str, Any], *, timeout_s: float | None = None) -> pa.Table:
        """Call DoGet, and read all that it gives; raises as :meth:`action` does."""
        self.check_open()
        options = fl.FlightCallOptions(timeout=timeout_s)
        try:
            return self.flight.do_get(fl.Ticket(_encoded(ticket)), options).read_all()
        except FLIGHT_ERRORS as error:
            raise self.translate(error) from error

    def translate(self, error: BaseException) -> TarryError:
        """Translate an error of a call: what the broker said, or that it could not be reached."""
        broker_error = getattr(error, "extra_info", None)
        if broker_error:
            return decode_error(bytes(broker_error))
        if self._closed:
            return ClosedError(f"the client of {self.address} is closed")
        if "failed to connect" in str(error):
            self._renew()
        return UnavailableError(f"no answer from the broker at {self.address}: {_short(error)}")

    def check_open(self) -> None:
        """Raise ClosedError after :meth:`close`."""
        if self._closed:
            raise ClosedError(f"the client of {self.address} is closed")

    def close(self) -> None:
        """Refuse new calls; those under way end by themselves."""
        if not self._closed:
            self._closed = True
            try:
                self.flight.close()
            except FLIGHT_ERRORS as error:
                log.debug("closing the connection: %s", error)


def _encoded(body: Any) -> bytes:
    try:
        return encode_json(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{body!r:.80} cannot be sent: {error}") from error


def _short(error: BaseException) -> str:
    """Return the part of pyarrow's text that a person can use."""
    text = re.split(r"\.? ?gRPC client debug context|\. Client context|\. Detail:", str(error), maxsplit=1)[0]
    return text.replace("Flight returned unavailable error, with message: ", "").strip() or type(error).__name__
