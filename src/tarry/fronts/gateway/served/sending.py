"""Batches that a gateway schedules."""

from __future__ import annotations

from typing import Any

from tarry.api.local import LocalBroker, OnAccepted
from tarry.api.wire import encode_accepted, encode_placed
from tarry.fronts.gateway.frames import FrameKind, decode_batch, decode_rows, numbered
from tarry.fronts.gateway.served.outgoing import Outgoing
from tarry.message.receipt import Accepted
from tarry.message.schema import UNNUMBERED


class Submissions:
    """Schedules a gateway's batches.

    On the loop's thread; the answer is sent when the batch is durable.
    """

    def __init__(self, broker: LocalBroker, out: Outgoing) -> None:
        self._broker, self._out = broker, out

    def submit(self, number: int, payload: memoryview) -> None:
        """Submit rows as a producer gives them."""
        # The front in the other process has checked that the producer may send them.
        self._broker.submit(decode_rows(payload), self._answer(number), internal=True)

    def submit_checked(self, number: int, payload: memoryview) -> None:
        """Submit rows that were checked one by one."""
        self._broker.submit_checked(decode_batch(payload, UNNUMBERED), self._answer(number))

    def _answer(self, number: int) -> OnAccepted:
        return self._out.answer(FrameKind.ACCEPTED, number, _encoded)


def _encoded(result: Accepted) -> list[Any]:
    due = result.due_ms
    placed = b"" if result.placed is None else encode_placed(result.placed)
    accepted = encode_accepted(result.first_seq, len(due), result.token, due)
    return [numbered(len(accepted)), accepted, placed]
