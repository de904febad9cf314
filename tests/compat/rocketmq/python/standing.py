"""Clients that stay: through restarts of the broker, and many that only wait."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

from .base import INVISIBLE_S, QUIET_S, Context, Facts, Listener, check, same, say

TIMEOUT_S = 120.0
"""After the last send, until all is received: a lease that a restart cut short has to end first."""


class _Receiving:
    """A SimpleConsumer in a thread of its own, which goes on after errors."""

    def __init__(self, consumer: Any) -> None:
        self.bodies: list[str] = []
        self.errors = 0
        self._consumer = consumer
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Receiving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(INVISIBLE_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                for message in self._consumer.receive(16, 10) or ():
                    self.bodies.append(bytes(message.body).decode())
                    self._consumer.ack(message)
            except Exception:  # noqa: BLE001 - the broker is away
                self.errors += 1
                time.sleep(0.2)


def reconnect(context: Context) -> Facts:
    """One message each 100 ms while the broker is killed and started again; what was acknowledged is received."""
    return _reconnect(context, pushed=False)


def reconnect_push(context: Context) -> Facts:
    """The same with a PushConsumer."""
    return _reconnect(context, pushed=True)


def _reconnect(context: Context, pushed: bool) -> Facts:
    wanted = context.number(0, 300)
    listener = Listener()
    with ExitStack() as stack:
        producer = stack.enter_context(context.producer())
        consumer = stack.enter_context(context.push(listener) if pushed else context.simple())
        receiving = stack.enter_context(nullcontext() if pushed else _Receiving(consumer))
        acknowledged, errors, longest_s = _send(context, producer, wanted)

        def bodies() -> list[str]:
            return list(receiving.bodies) if receiving else [one.text for one in listener.seen()]

        deadline = time.monotonic() + TIMEOUT_S
        while missing := set(acknowledged) - set(bodies()):
            check(time.monotonic() < deadline, f"lost: {len(missing)} of {wanted}, such as {sorted(missing)[:5]}")
            time.sleep(0.1)
        counts = Counter(bodies())
    return {
        "acknowledged": wanted,
        "send_errors": errors,
        "outage_ms": round(longest_s * 1000),
        "received": sum(counts.values()),
        "duplicates": sum(times - 1 for times in counts.values()),
        "unacknowledged_received": len(set(counts) - set(acknowledged)),
    }


def _send(context: Context, producer: Any, wanted: int) -> tuple[list[str], int, float]:
    """The bodies that the broker acknowledged, how many sends failed, and the longest time without an answer."""
    acknowledged: list[str] = []
    errors, attempt, longest_s = 0, 0, 0.0
    answered = time.monotonic()
    while len(acknowledged) < wanted:
        body = f"reconnect {attempt}"
        attempt += 1
        try:
            producer.send(context.message(body))
        except Exception:  # noqa: BLE001 - the broker is away
            errors += 1
            check(time.monotonic() - answered < TIMEOUT_S, f"no send succeeds for {TIMEOUT_S:g} s")
        else:
            longest_s = max(longest_s, time.monotonic() - answered)
            answered = time.monotonic()
            acknowledged.append(body)
            if len(acknowledged) == 1:
                say("ready")
        time.sleep(0.1)
    return acknowledged, errors, longest_s


def idle(context: Context) -> Facts:
    """Many PushConsumers of one group that only wait; then they still share what comes."""
    clients, seconds = context.number(0, 20), context.number(1, 10)
    listener = Listener()
    with ExitStack() as stack:
        producer = stack.enter_context(context.producer())
        began = time.monotonic()
        for _ in range(clients):
            stack.enter_context(context.push(listener))
        connected_s = time.monotonic() - began
        say("ready")
        time.sleep(seconds)
        same("messages while idle", len(listener.seen()), 0)
        for index in range(clients):
            producer.send(context.message(f"idle {index}"))
        listener.wait(clients, TIMEOUT_S)
        time.sleep(QUIET_S)
        bodies = sorted(one.text for one in listener.seen())
    same("bodies", bodies, sorted(f"idle {index}" for index in range(clients)))
    return {"clients": clients, "connected_s": round(connected_s, 2), "idle_s": seconds}


SCENARIOS: dict[str, Callable[[Context], Facts]] = {
    "reconnect": reconnect,
    "reconnect-push": reconnect_push,
    "idle": idle,
}
