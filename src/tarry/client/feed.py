"""Connection of a consumer: keeps a stream open, hands on what arrives, connects again when it broke.

One thread reads. It puts batches into ``sink`` and never waits for the consumer: the broker sends no more than
``prefetch`` unsettled messages, which bounds what can gather here. Each stream has its own settler: when a stream is
over, the broker redelivers what it had handed out, so acks that were not sent with it are void. How many that are at a
time is the business of :class:`tarry.client.holding.Holding`, and so is what becomes of the leases.
"""

from __future__ import annotations

import atexit
import logging
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from tarry.api.wire import (
    GOODBYE,
    LEASE_MS,
    SETTLED,
    Notice,
    StreamOp,
    as_bytes,
    decode_notice,
    encode_json,
    encode_settle,
)
from tarry.base.back_off import BackOff
from tarry.base.errors import CorruptError, InvalidArgumentError, NotFoundError, TarryError, UnavailableError
from tarry.base.types import Int64s
from tarry.client.connection import FLIGHT_ERRORS, BrokerConnection
from tarry.client.delivery import DeliveryBatch
from tarry.client.holding import Holding
from tarry.client.outages import Outage, outage_of
from tarry.client.settling import Settler, Source

log = logging.getLogger(__name__)

BACKOFF_S = 0.05
BACKOFF_MAX_S = 2.0
"""Between tries to connect: the first pause, doubled up to the second."""
STEADY_S = 1.0
"""A stream that lasted for so long was none of those tries."""
LEASE_MS_DEFAULT = 30_000
"""Of a broker that does not say."""
CONNECT_S = 1.0
"""A first try to connect that has had no answer for so long counts as one that failed."""
ANSWER_S = 5.0
"""Seconds that a connected broker may take to answer."""
CLOSE_S = 5.0
"""Seconds that closing waits for the broker to confirm the last acks."""

HOPELESS = (InvalidArgumentError, NotFoundError, CorruptError)
"""Errors that connecting again does not help."""

_running: weakref.WeakSet[Feed] = weakref.WeakSet()

Sink = Callable[[DeliveryBatch | TarryError | None], None]
"""Gets a batch; or the error that ends everything; or None at the end after :meth:`Feed.close`."""


class _ConsumeStream:
    """One DoExchange stream."""

    def __init__(
        self,
        connection: BrokerConnection,
        command: dict[str, Any],
        tend: Callable[[], float | None],
        on_settled: Callable[[TarryError | None], None],
    ) -> None:
        connection.check_open()
        descriptor = fl.FlightDescriptor.for_command(encode_json(command))
        try:
            self._writer, self.reader = connection.flight.do_exchange(descriptor)
        except FLIGHT_ERRORS as error:
            raise connection.translate(error) from error
        self.settler = Settler(self._send, tend=tend)
        self._knows_reasons = True
        self._changed = threading.Condition()
        self._on_settled = on_settled
        self._sent = 0
        self._durable: deque[int] = deque()
        """Numbers of unanswered messages that the broker makes durable, which it may be unable to."""
        self._settled = 0
        self._error: TarryError | None = None
        self._ended = False
        self.heard_s = time.monotonic()
        """Time of the broker's last word, monotonic."""
        self.goodbye: TarryError | None = None
        """The broker's reason for ending the stream."""

    def lease_ms(self) -> int | None:
        """Return the milliseconds for which a batch is the consumer's. Waits for the broker's first word.

        None: the broker is an older one, which does not say, nor has a window, nor hears of reasons.
        """
        said = (self.reader.schema.metadata or {}).get(LEASE_MS)
        self._knows_reasons = said is not None
        return None if said is None else int(said)

    def _send(self, op: StreamOp, argument: int, source: Source, leases: Int64s, offsets: Int64s, reason: str) -> None:
        if op is StreamOp.FAIL and not self._knows_reasons:
            op = StreamOp.NACK
        if (len(leases) or op is StreamOp.WINDOW) and not self._ended:
            try:
                self._writer.write_metadata(pa.py_buffer(encode_settle(op, argument, leases, offsets, reason)))
            except FLIGHT_ERRORS as error:
                raise UnavailableError(f"the connection is lost: {error}") from error
            self._sent += 1
            if op in (StreamOp.ACK, StreamOp.NACK, StreamOp.FAIL):
                self._durable.append(self._sent)

    def sent(self) -> int:
        """Return the number of the last message sent; it changes under the settler's lock."""
        return self._sent

    def on_settled(self, notice: Notice) -> None:
        is_durable = False
        while self._durable and self._durable[0] <= notice.number:
            self._durable.popleft()
            is_durable = True
        if notice.error is not None or is_durable:
            self._on_settled(notice.error)
        with self._changed:
            self._error = self._error or notice.error
            self._settled = max(self._settled, notice.number)
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> None:
        self.settler.push()
        with self._changed:
            sent = self._sent
            done = self._changed.wait_for(lambda: self._settled >= sent or self.settler.closed, timeout_s)
            error, self._error = self._error, None
            lost = self._settled < sent
        error = error or self.settler.take_error()
        if error is None and lost:
            reason = "the connection was lost" if done else f"no answer within {timeout_s} s"
            error = UnavailableError(f"{reason}; messages whose acks were not received come again")
        if error is not None:
            raise error

    def answers(self, window: int, timeout_s: float) -> bool:
        """Return whether the broker answers in time, or the connection ends; ``window``: what it is told."""
        if not self._knows_reasons:
            return True  # of an older one nobody knows
        self.settler.resize(window)
        self.settler.push()
        with self._changed:
            sent = self._sent
            return self._changed.wait_for(lambda: self._settled >= sent or self.settler.closed, timeout_s)

    def end(self) -> None:
        """Send what has gathered, and that nothing more follows. The broker then ends the stream."""
        self.settler.push()
        with self.settler.lock():
            if not self._ended:
                self._ended = True
                try:
                    self._writer.done_writing()
                except FLIGHT_ERRORS as error:
                    log.debug("ending a stream failed: %s", error)

    def release(self) -> None:
        """Close what belongs to the stream, which has ended, for whatever reason."""
        self.settler.close()
        with self._changed:
            self._changed.notify_all()
        self.reader.cancel()  # does nothing where the broker has ended it
        with self.settler.lock():
            try:
                self._writer.close()
            except FLIGHT_ERRORS as error:
                log.debug("closing a stream failed: %s", error)


class Feed:
    """Runs from construction until :meth:`close`, or an error that trying again does not help."""

    def __init__(self, address: str, command: dict[str, Any], holding: Holding, sink: Sink) -> None:
        self._holding = holding
        self._outage = outage_of(address)
        self._own_trouble = Outage(address, meanwhile="asking again and again", over="serves it again")
        self._unsettled = Outage(address, meanwhile="those messages come again", over="settles again")
        self._connection = BrokerConnection(address, waiting=True)
        self._command = command
        self._source = (command["topic"], command["group"])
        self._sink = sink
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._stream: _ConsumeStream | None = None
        self._away: tuple[float, TarryError | None] | None = (time.monotonic(), None)
        """Since when the broker has not been reached, and the last error; None while it is."""
        self._refusal: TarryError | None = None
        """The reason why the broker, which is there, does not serve this consumer now."""
        self._back_off = BackOff(BACKOFF_S, BACKOFF_MAX_S)
        self._thread = threading.Thread(target=self._run, name="tarry-client-feed", daemon=True)
        _running.add(self)
        self._thread.start()

    @property
    def settler(self) -> Settler | None:
        """The settler of the present stream; None between two streams."""
        stream = self._stream
        return None if stream is None else stream.settler

    def check_reached(self, since_s: float) -> None:
        """Check that the broker is there, as nothing came since then (of ``time.monotonic``).

        One that has said nothing else either is asked.

        Raises:
            UnavailableError: the broker could not be reached all the while: nobody knows whether there was something.
            TarryError: it does not serve this consumer, and why: the group's filter is paused, say.
        """
        stream, away, refusal = self._stream, self._away, self._refusal
        why: object = None
        if away is None and stream is not None and stream.heard_s < since_s:
            if not stream.answers(self._holding.window, ANSWER_S):
                why = f"no answer within {ANSWER_S:g} s"
        elif away is not None and away[0] <= since_s:
            why = away[1]
            if why is None and refusal is None and time.monotonic() - since_s >= CONNECT_S:
                why = "no answer yet"
        if why is None and refusal is not None:
            raise refusal
        if why is not None:
            raise UnavailableError(
                "consuming {} as {}: the broker at {} could not be reached for {:.1f} s: {}".format(
                    *self._source, self._connection.address, time.monotonic() - since_s, why
                )
            )

    def flush(self, timeout_s: float) -> None:
        """Wait until what was settled so far is durable in the broker.

        Raises:
            StaleLeaseError: some leases had ended before the ack. UnavailableError: the connection was lost meanwhile.
        """
        stream = self._stream
        if stream is not None:
            stream.flush(timeout_s)

    def abandon(self) -> None:
        """Send the last acks and end, without waiting."""
        with self._lock:
            self._closing.set()
            stream = self._stream
        if stream is not None:
            stream.end()

    def close(self) -> None:
        """Send the last acks, wait for the broker to confirm them, and end."""
        self.abandon()
        if self._thread is threading.current_thread():
            return
        self._thread.join(CLOSE_S)
        if self._thread.is_alive() and (stream := self._stream) is not None:
            stream.reader.cancel()
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    self._serve()
                except HOPELESS as error:
                    self._sink(error)
                    return
                except TarryError as error:
                    self._on_failure(error)
                    if not self._closing.is_set():
                        outage = self._outage if isinstance(error, UnavailableError) else self._own_trouble
                        outage.begin(error, "consuming {} as {}".format(*self._source))
                # Not all at once, where there are many.
                self._closing.wait(self._back_off.fail() * random.uniform(0.7, 1.0))
        except Exception as error:
            log.exception("a consumer failed")
            self._sink(TarryError(f"the consumer failed: {error}"))
        finally:
            self._connection.close()
            self._sink(None)

    def _on_failure(self, error: TarryError) -> None:
        is_answer = not isinstance(error, UnavailableError)
        since_s = time.monotonic() if is_answer or self._away is None else self._away[0]
        self._away = (since_s, None if is_answer else error)
        self._refusal = error if is_answer else None

    def _serve(self) -> None:
        """Open one stream, and read it to its end."""
        try:
            self._read({**self._command, "window": self._holding.window})
        except InvalidArgumentError as error:
            if "window is not a field" not in str(error):
                raise
            self._read(self._command)  # an older broker

    def _read(self, command: dict[str, Any]) -> None:
        stream = _ConsumeStream(self._connection, command, self._holding.tend, self._on_settled)
        with self._lock:
            self._stream = stream
            closing = self._closing.is_set()
        if closing:
            stream.end()
        try:
            self._begin(stream)
            since_s = time.monotonic()
            while True:
                chunk = stream.reader.read_chunk()
                stream.heard_s = time.monotonic()
                is_steady = stream.heard_s - since_s >= STEADY_S
                if is_steady:
                    self._back_off.reset()
                if is_steady or chunk.data is not None:
                    self._refusal = None
                    self._own_trouble.end()
                self._on_chunk(stream, chunk)
        except StopIteration:
            if stream.goodbye is not None and not isinstance(stream.goodbye, UnavailableError):
                raise stream.goodbye from None
            if not self._closing.is_set():
                raise UnavailableError(f"the broker at {self._connection.address} ended the stream") from None
        except FLIGHT_ERRORS as error:
            raise self._connection.translate(error) from error
        finally:
            self._stream = None
            self._holding.end_stream()
            stream.release()

    def _begin(self, stream: _ConsumeStream) -> None:
        lease_ms = stream.lease_ms()
        self._away = None
        self._outage.end()
        if lease_ms is not None:
            self._holding.begin_stream(stream.settler, lease_ms, stream.sent, adapts=True)
            return
        own_ms = self._command["lease_ms"] or self._group_lease_ms()
        self._holding.begin_stream(stream.settler, own_ms, stream.sent, adapts=False)

    def _group_lease_ms(self) -> int:
        """Return the lease of the group's settings."""
        topic, group = self._source
        broadcast = self._command["broadcast"]
        try:
            name = group if broadcast is None else f"{group}@{broadcast}"
            info = self._connection.action("group-info", {"topic": topic, "group": name}, timeout_s=CLOSE_S)
            return int(info["lease_ms"])
        except (TarryError, KeyError, TypeError, ValueError) as error:
            log.debug("the lease of group %s of topic %s is not known: %s", group, topic, error)
            return LEASE_MS_DEFAULT

    def _on_chunk(self, stream: _ConsumeStream, chunk: fl.FlightStreamChunk) -> None:
        if chunk.data is not None:
            if chunk.data.num_rows:
                batch = DeliveryBatch(chunk.data, stream.settler, self._source)
                self._holding.add(batch)
                self._sink(batch)
            return
        notice = decode_notice(as_bytes(chunk.app_metadata))
        if notice.op is SETTLED:
            stream.on_settled(notice)
            self._holding.on_settled(notice.number)
        elif notice.op is GOODBYE:
            log.info("consuming %s as %s: %s", *self._source, notice.error)
            stream.goodbye = notice.error
            stream.end()
        else:
            self._holding.answer()

    def _on_settled(self, error: TarryError | None) -> None:
        if error is None:
            self._unsettled.end()
        elif error.retryable:  # a full disk, say, which lasts
            self._unsettled.begin(error, "consuming {} as {}: the broker did not settle all".format(*self._source))
        else:
            log.warning("the broker did not settle all: %s", error)


@atexit.register
def _end_all() -> None:
    # What a consumer settled just before it was forgotten is on its way still; and a thread of ours that comes back
    # from gRPC while the interpreter goes away would take the process down with it.
    for feed in list(_running):
        feed.close()
