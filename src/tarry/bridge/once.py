"""A message of RabbitMQ is scheduled once if it came twice, and always if it was published anew.

RabbitMQ gives a message again when its acknowledgement was lost, and a program publishes it again when a confirm was.
Such a message has the same message id and says the same, and if the first is pending, it is that one. But a program
that could not handle a message may publish it once more too, with the same id, so that it comes later. So what says the
same as one that has been delivered already is scheduled anew: a message may come twice, and none is dropped.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

from tarry.api.calls import AsyncCalls
from tarry.message.receipt import Receipt

log = logging.getLogger(__name__)

CLOCKS_MS = 50
"""Largest difference between the clocks of bridge and broker.

Beyond it, a message may come twice where an answer was lost.
"""


async def schedule_once(client: AsyncCalls, row: dict[str, Any], fingerprint: str, taken_ms: int) -> None:
    """Schedule a message; ``fingerprint``: of what it says; ``taken_ms``: when the bridge has got it.

    Raises:
        TarryError: it is not accepted, or it is not known whether it is. Then it may be called again.
    """
    key = row["key"]
    if key is None:  # without a name, nobody can tell it from another one
        await client.schedule(**row)
        return
    receipt = await client.schedule(**row, id=fingerprint)
    if receipt.outcome not in ("kept", "duplicate") or _is_own(receipt, row, taken_ms):
        return
    pending = await client.find_key(row["topic"], key)
    if pending is None or row["on_key"] == "replace":
        if pending is None or pending.id != fingerprint:
            await client.schedule(**row, id=uuid.uuid4().hex)
    elif pending.id != fingerprint:
        # What is pending under this message id says something else: both are to come, and the id cancels the first.
        anew = {name: value for name, value in row.items() if name != "on_key"}
        await client.schedule(**{**anew, "key": None}, id=fingerprint)


def _is_own(receipt: Receipt, row: dict[str, Any], taken_ms: int) -> bool:
    """Return whether the accepted message is this one, by a former call whose answer was lost."""
    delay = row.get("delay")
    return (
        receipt.outcome == "duplicate"
        and delay is not None
        and receipt.due_ms >= taken_ms + delay.total_seconds() * 1000 - CLOCKS_MS
    )
