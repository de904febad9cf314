"""Messages that are not delivered when they are sent: delays, recalls, transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rocketmq import TransactionChecker, TransactionResolution

from .base import Context, Facts, Received, check, drain, nothing, now_ms, refused, same

TIMEOUT_S = 30.0
LATE_MS_MAX = 2500.0
"""RocketMQ is up to 1.1 s late; Tarry is measured elsewhere."""
ASKED_S = 120.0
"""RocketMQ asks for a transaction that is left undecided about 30 s later."""


def delay(context: Context) -> Facts:
    """Never early. This client can only say whole seconds."""
    first_s = int(time.time()) + 3
    due_ms = {f"delay {index}": (first_s + index // 3) * 1000 for index in range(9)}
    with context.producer() as producer, context.simple() as consumer:
        for body, due in due_ms.items():
            producer.send(context.message(body, due_s=due // 1000))
        came = drain(consumer, len(due_ms), TIMEOUT_S)
        nothing(consumer, 1.0)
    same("bodies", sorted(one.text for one in came), sorted(due_ms))
    lateness = [_lateness_ms(one, due_ms[one.text]) for one in came]
    return {
        "messages": len(came),
        "precision_ms": 1000,
        "lateness_ms_min": round(min(lateness), 1),
        "lateness_ms_mean": round(sum(lateness) / len(lateness), 1),
        "lateness_ms_max": round(max(lateness), 1),
    }


def _lateness_ms(received: Received, due_ms: int) -> float:
    same("delivery timestamp", received.message.delivery_timestamp, due_ms)
    late_ms = received.at_ms - due_ms
    check(late_ms >= 0, f"{-late_ms:.1f} ms early")
    check(late_ms <= LATE_MS_MAX, f"{late_ms:.1f} ms late")
    return late_ms


def past_delay(context: Context) -> Facts:
    """Due already: delivered at once."""
    with context.producer() as producer, context.simple() as consumer:
        sent_ms = now_ms()
        for past_s in (1, 60, 86_400):
            producer.send(context.message(f"{past_s} s ago", due_s=int(time.time()) - past_s))
        came = drain(consumer, 3, TIMEOUT_S)
        waited_ms = max(one.at_ms for one in came) - sent_ms
        check(waited_ms <= 3000, f"came after {waited_ms:.0f} ms")
        nothing(consumer)
    return {"messages": 3, "waited_ms": round(waited_ms, 1)}


def recall(context: Context) -> Facts:
    """A recalled message never comes. What cannot be recalled is refused.

    The original says OK to any well-formed handle, of messages that are delivered or unknown, too; and it has recalls
    switched off unless recallMessageEnable is set.
    """
    due_s = int(time.time()) + 4
    with context.producer() as producer, context.simple() as consumer:
        unwanted = producer.send(context.message("recalled", due_s=due_s))
        control = producer.send(context.message("control", due_s=due_s))
        check(bool(unwanted.recall_handle), "no recall handle")
        same("recalled id", producer.recall_message(context.topic, unwanted.recall_handle), unwanted.message_id)
        same("body", drain(consumer, 1, TIMEOUT_S)[0].text, "control")
        nothing(consumer)
        handles = {
            "delivered": control.recall_handle,
            "recalled already": unwanted.recall_handle,
            "unknown": "bm8gc3VjaCBoYW5kbGU",
        }
        codes = {
            name: refused(
                f"recall of a message that is {name}", partial(producer.recall_message, context.topic, handle)
            )
            for name, handle in handles.items()
        }
    for name, (side, code) in codes.items():
        check(side == "server" and code is not None and 40_000 <= code < 50_000, f"refusal of {name}: {side} {code}")
    return {"codes": {name: code for name, (_, code) in codes.items()}}


class _Checker(TransactionChecker):  # type: ignore[misc]
    """Commits what it is asked for, and knows what that was."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.asked_ms = 0.0
        self._lock = threading.Lock()

    def check(self, message: Any) -> Any:
        with self._lock:
            self.asked_ms = self.asked_ms or now_ms()
            self.asked.append((bytes(message.body).decode(), message.message_id))
        return TransactionResolution.COMMIT


def transaction(context: Context) -> Facts:
    """Committed: delivered. Rolled back: not. Undecided: the checker is asked, and commits."""
    checker = _Checker()
    with context.producer(checker) as producer, context.simple() as consumer:
        ids = {}
        for body in ("commit", "rollback", "undecided"):
            transaction = producer.begin_transaction()
            ids[body] = producer.send(context.message(body, tag="transaction"), transaction).message_id
            if body == "commit":
                transaction.commit()
            elif body == "rollback":
                transaction.rollback()
        sent_ms = now_ms()
        committed = drain(consumer, 1, TIMEOUT_S)[0]
        same("first message", (committed.text, committed.message.message_id), ("commit", ids["commit"]))
        decided = drain(consumer, 1, ASKED_S)[0]
        same("second message", (decided.text, decided.message.message_id), ("undecided", ids["undecided"]))
        same("tag", decided.message.tag, "transaction")
        nothing(consumer)
    # Asked twice where the answer was slow, but about nothing else.
    same("messages that the checker was asked about", set(checker.asked), {("undecided", ids["undecided"])})
    return {"asked": len(checker.asked), "asked_after_ms": round(checker.asked_ms - sent_ms)}


SCENARIOS: dict[str, Callable[[Context], Facts]] = {
    "delay": delay,
    "past-delay": past_delay,
    "recall": recall,
    "transaction": transaction,
}
