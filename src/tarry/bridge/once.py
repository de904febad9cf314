"""A message of RabbitMQ is scheduled once if it came twice, and always if it was published anew.

RabbitMQ gives a message again when its acknowledgement was lost, and a program publishes it again when a confirm was.
Such a message has the same message id and says the same, and if the first is pending, it is that one. But a program
that could not handle a message may publish it once more too, with the same id, so that it comes later. So what says the
same as one that has been delivered already is scheduled anew: a message may come twice, and none is dropped.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tarry.api.calls import AsyncCalls
from tarry.message.receipt import Receipt

CLOCKS_MS = 50
"""Largest difference between the clocks of bridge and broker.

Beyond it, a message may come twice where an answer was lost.
"""


@dataclass(slots=True)
class Taken:
    """A message that RabbitMQ has given, until it is scheduled.

    ``row``: arguments of :meth:`tarry.Client.schedule`. ``fingerprint``: of what it says. ``taken_ms``: when the bridge
    has got it; its delay counts from then.
    """

    row: dict[str, Any]
    fingerprint: str
    taken_ms: int
    is_asked: bool = False
    """The broker may have it already, by a call whose answer was lost."""
    _own_id: str = ""

    @property
    def waits_ms(self) -> float:
        """Milliseconds from when the bridge has it until it is due."""
        if "delay" in self.row:
            return float(self.row["delay"].total_seconds() * 1000)
        return float(self.row["due"] - self.taken_ms)

    @property
    def own_id(self) -> str:
        """An id that no other message has, also none that says the same."""
        self._own_id = self._own_id or uuid.uuid4().hex
        return self._own_id


async def schedule_once(client: AsyncCalls, taken: Taken, waited_s: float = 0.0) -> None:
    """Schedule a message, ``waited_s`` after the bridge has got it.

    Raises:
        TarryError: it is not accepted, or it is not known whether it is. Then it may be called again.
    """
    row, was_asked, taken.is_asked = _after(taken.row, waited_s), taken.is_asked, True
    key = row["key"]
    if key is None:  # without a name, nobody can tell it from another one
        await client.schedule(**row, id=taken.own_id)
        return
    receipt = await client.schedule(**row, id=taken.fingerprint)
    if receipt.outcome not in ("kept", "duplicate") or (was_asked and _is_own(receipt, taken)):
        return
    pending = await client.find_key(row["topic"], key)
    if pending is not None and pending.id == taken.fingerprint:
        return
    if pending is None or row["on_key"] == "replace":
        await client.schedule(**row, id=taken.own_id)
        return
    # What is pending under this message id says something else: both are to come, and the id cancels the first.
    anew = {name: value for name, value in row.items() if name != "on_key"}
    await client.schedule(**{**anew, "key": None}, id=taken.fingerprint if receipt.outcome == "kept" else taken.own_id)


def _after(row: dict[str, Any], waited_s: float) -> dict[str, Any]:
    """Return a row whose delay is what is left of it."""
    if "delay" not in row:
        return row
    return {**row, "delay": max(timedelta(0), row["delay"] - timedelta(seconds=waited_s))}


def _is_own(receipt: Receipt, taken: Taken) -> bool:
    """Return whether the accepted message is this one, by a former call whose answer was lost."""
    delay = taken.row.get("delay")
    return (
        receipt.outcome == "duplicate"
        and delay is not None
        and receipt.due_ms >= taken.taken_ms + delay.total_seconds() * 1000 - CLOCKS_MS
    )
