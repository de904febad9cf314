"""Batches that are scheduled by the link."""

from __future__ import annotations

from typing import Any

from tarry.api.local import OnAccepted
from tarry.api.wire import encode_accepted, encode_placed
from tarry.base.arrow_messages import refuse_compressed
from tarry.fronts.link.flow import Flow
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.shared import Shared
from tarry.link.frames import FrameKind, decode_batch, decode_rows, numbered
from tarry.message.receipt import Accepted
from tarry.message.schema import UNNUMBERED


class Submissions:
    """Schedules a gateway's batches.

    On the loop's thread; the answer is sent when the batch is durable.
    """

    def __init__(self, shared: Shared, out: Outgoing) -> None:
        self._broker, self._out = shared.broker, out

    def submit(self, number: int, payload: memoryview) -> None:
        """Submit rows as a producer gives them."""
        # The front in the other process has checked that the producer may send them.
        self._broker.submit(decode_rows(payload), self._answer(number), internal=True)

    def submit_checked(self, number: int, payload: memoryview) -> None:
        """Submit rows that were checked one by one."""
        self._broker.submit_checked(decode_batch(payload, UNNUMBERED), self._answer(number))

    def _answer(self, number: int) -> OnAccepted:
        return self._out.answer(FrameKind.ACCEPTED, number, _encoded)


class ClientSubmissions:
    """Schedules a client's batches. On the loop's thread; the answer is sent when the batch is durable."""

    def __init__(self, shared: Shared, out: Outgoing, flow: Flow) -> None:
        self._broker, self._out, self._flow = shared.broker, out, flow

    def submit(self, number: int, payload: memoryview) -> None:
        """Submit rows; all of them are accepted, or none."""
        refuse_compressed(payload)  # a few bytes could say that they are gigabytes
        rows = decode_rows(payload)
        end = self._flow.begin(len(payload))
        try:
            self._broker.submit(rows, self._out.answer(FrameKind.ACCEPTED, number, _encoded, end))
        except BaseException:
            end()
            raise


def _encoded(result: Accepted) -> list[Any]:
    due = result.due_ms
    placed = b"" if result.placed is None else encode_placed(result.placed)
    accepted = encode_accepted(result.first_seq, len(due), result.token, due)
    return [numbered(len(accepted)), accepted, placed]
