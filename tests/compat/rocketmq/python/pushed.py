"""PushConsumer: every message once, retries, dead letters; and the order of FIFO messages, with SimpleConsumer too."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import wait
from itertools import pairwise
from typing import Any

from .base import QUIET_S, Context, Facts, Listener, Received, check, drain, nothing, now_ms, same

TIMEOUT_S = 60.0
RETRIES_S = 150.0
"""The original's default back-off is 10 s, then 30 s."""


def push(context: Context) -> Facts:
    """500 messages, each exactly once."""
    count = context.number(0, 500)
    listener = Listener()
    with context.producer() as producer, context.push(listener):
        began_ms = now_ms()
        futures = [producer.send_async(context.message(f"push {index}")) for index in range(count)]
        wait(futures, TIMEOUT_S)
        same("message ids", len({future.result(0).message_id for future in futures}), count)
        sent_ms = now_ms()
        last_ms = listener.wait(count, TIMEOUT_S)[-1].at_ms
        time.sleep(QUIET_S)
        counts = Counter(one.text for one in listener.seen())
    same("bodies", sorted(counts), sorted(f"push {index}" for index in range(count)))
    same("duplicates", {body: times for body, times in counts.items() if times > 1}, {})
    return {"messages": count, "sent_ms": round(sent_ms - began_ms), "received_ms": round(last_ms - began_ms)}


def push_retry(context: Context) -> Facts:
    """The listener fails the first two attempts of each message: attempts 1, 2 and 3 come."""
    listener = Listener(lambda message: bool(message.delivery_attempt >= 3))
    bodies = [f"retry {index}" for index in range(5)]
    with context.producer() as producer, context.push(listener):
        for body in bodies:
            producer.send(context.message(body))
        listener.wait(3 * len(bodies), RETRIES_S)
        time.sleep(QUIET_S)
        attempts = _attempts(listener.seen())
    same("attempts", attempts, {body: [1, 2, 3] for body in bodies})
    return {"messages": len(bodies), "gaps_ms": _gaps_ms(listener.seen())}


def push_dead(context: Context) -> Facts:
    """The listener always fails: so many attempts as the group has, then no more."""
    attempts_max, quiet_s = context.number(0, 3), context.number(1, 10)
    listener = Listener(lambda _: False)
    with context.producer() as producer, context.push(listener):
        producer.send(context.message("dead"))
        listener.wait(attempts_max, RETRIES_S)
        time.sleep(quiet_s)
        attempts = _attempts(listener.seen())
    same("attempts", attempts, {"dead": list(range(1, attempts_max + 1))})
    return {"attempts": attempts_max, "quiet_s": quiet_s, "gaps_ms": _gaps_ms(listener.seen())}


def _attempts(received: list[Received]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for one in received:
        found[one.text].append(one.message.delivery_attempt)
    return dict(found)


def _gaps_ms(received: list[Received]) -> list[int]:
    """Between the attempts of the first message."""
    times = [one.at_ms for one in received if one.text == received[0].text]
    return [round(after - before) for before, after in pairwise(times)]


def fifo(context: Context) -> Facts:
    """Three message groups of 20, interleaved: the order within each is kept, by SimpleConsumer and by PushConsumer."""
    with context.producer() as producer:
        with context.simple() as consumer:
            _send_groups(context, producer, "simple")
            _in_order(drain(consumer, 60, TIMEOUT_S), "simple")
            nothing(consumer)
        listener = Listener(pause_s=0.005)
        with context.push(listener):
            _send_groups(context, producer, "push")
            listener.wait(60, TIMEOUT_S)
            time.sleep(QUIET_S)
        _in_order(listener.seen(), "push")
    return {"messages": 120, "groups": 3, "push": True}


def _send_groups(context: Context, producer: Any, phase: str) -> None:
    for index in range(20):
        for group in ("red", "green", "blue"):
            producer.send(context.message(f"{phase} {index}", group=group))


def _in_order(received: list[Received], phase: str) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for one in received:
        found[one.message.message_group].append(one.text)
    check(len(received) == 60, f"{len(received)} of 60 messages")
    for group in ("red", "green", "blue"):
        same(f"order in {group}", found[group], [f"{phase} {index}" for index in range(20)])


SCENARIOS: dict[str, Callable[[Context], Facts]] = {
    "push": push,
    "push-retry": push_retry,
    "push-dead": push_dead,
    "fifo": fifo,
}
