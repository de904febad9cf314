"""Batches that are scheduled by the link."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tarry.api.local import OnAccepted
from tarry.api.wire import encode_accepted, encode_placed
from tarry.fronts.kit.known_errors import known
from tarry.fronts.link.flow import Flow
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.shared import Shared
from tarry.identity.principal import Principal
from tarry.link.frames import FrameKind, decode_batch, decode_foreign_rows, decode_rows, numbered
from tarry.message.accepted import Accepted
from tarry.message.schema import UNNUMBERED

QUICK_BYTES = 128 << 10
"""So many are read on the loop, which others wait for."""


class Submissions:
    """Schedules a gateway's batches.

    On the loop's thread; the answer is sent when the batch is durable.
    """

    def __init__(self, shared: Shared, out: Outgoing) -> None:
        self._broker, self._out = shared.broker, out

    def submit(self, number: int, payload: memoryview, *, own_handles: bool = False) -> None:
        """Submit rows as producers give them; ``own_handles``: they are of several callers."""
        # The front in the other process has checked that the producer may send them.
        self._broker.submit(decode_rows(payload), self._answer(number), internal=True, own_handles=own_handles)

    def submit_checked(self, number: int, payload: memoryview, *, own_handles: bool = False) -> None:
        """Submit rows that were checked one by one."""
        batch = decode_batch(payload, UNNUMBERED)
        self._broker.submit_checked(batch, self._answer(number), own_handles=own_handles)

    def _answer(self, number: int) -> OnAccepted:
        return self._out.answer(FrameKind.ACCEPTED, number, _encoded)


class ClientSubmissions:
    """Schedules a client's batches, in their order. On the loop's thread.

    Large ones are read and submitted in a thread, for which those behind them wait. The answer to each is sent when it
    is durable.
    """

    def __init__(self, shared: Shared, out: Outgoing, flow: Flow, principal: Principal) -> None:
        self._shared, self._out, self._flow, self._principal = shared, out, flow, principal
        self._waiting: deque[tuple[int, memoryview, Callable[[], None]]] = deque()
        self._is_busy = False
        """True while a large one is in a thread, or the client has to wait by its quotas."""

    def submit(self, number: int, payload: memoryview) -> None:
        """Submit rows; all of them are accepted, or none."""
        self._waiting.append((number, payload, self._flow.begin(len(payload))))
        self._submit_next()

    def _submit_next(self) -> None:
        while self._waiting and not self._is_busy:
            if wait_s := self._principal.wait_s():
                self._is_busy = True
                self._shared.loop.call_later(wait_s, self._on_waited, wait_s)
                break
            self._submit_first()

    def _on_waited(self, waited_s: float) -> None:
        if rest_s := self._principal.wait_s(waited_s):
            self._shared.loop.call_later(rest_s, self._on_waited, waited_s + rest_s)
            return
        self._is_busy = False
        self._submit_first()
        self._submit_next()

    def _submit_first(self) -> None:
        number, payload, end = self._waiting.popleft()
        if len(payload) <= QUICK_BYTES:
            try:
                self._submit(number, payload, end)
            except Exception as error:  # noqa: BLE001  every error goes to the client, and bugs to the log
                self._refuse(number, end, error)
        else:
            self._is_busy = True
            submitted = self._shared.run_in_thread(self._submit, number, payload, end)
            submitted.add_done_callback(partial(self._on_submitted, number, end))

    def _submit(self, number: int, payload: memoryview, end: Callable[[], None]) -> None:
        """Read rows, and submit them. Any thread."""
        rows = decode_foreign_rows(payload)
        self._shared.broker.submit(rows, self._out.answer(FrameKind.ACCEPTED, number, _encoded, end))

    def _on_submitted(self, number: int, end: Callable[[], None], submitted: asyncio.Future[None]) -> None:
        self._is_busy = False
        if not submitted.cancelled() and (error := submitted.exception()) is not None:
            self._refuse(number, end, error)
        self._submit_next()

    def _refuse(self, number: int, end: Callable[[], None], error: BaseException) -> None:
        end()
        self._out.refuse(number, known(error))


def _encoded(result: Accepted) -> list[Any]:
    due = result.due_ms
    placed = b"" if result.placed is None else encode_placed(result.placed)
    accepted = encode_accepted(result.first_seq, len(due), result.token, due)
    return [numbered(len(accepted)), accepted, placed]
