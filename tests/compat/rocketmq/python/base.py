"""What the scenarios share: clients of the official package, deadlines, and checks that give a reason."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)

Facts = dict[str, Any]

REQUEST_S = 15
"""For a call: the client's own 3 s are little on a machine that does more than this."""
AWAIT_S = 3
"""Long polling of a simple consumer: short, so that "nothing comes" is seen soon; the original refuses 2 s."""
INVISIBLE_S = 30
QUIET_S = 3.0
"""For how long nothing may come where nothing is expected any more."""


class FailedError(Exception):
    """The server, or the client with it, did not do what this scenario expects."""


class SkippedError(Exception):
    """The client's API has no such thing."""


def check(condition: bool, reason: str) -> None:
    if not condition:
        raise FailedError(reason)


def same(what: str, found: object, expected: object) -> None:
    check(found == expected, f"{what}: {_short(found)} instead of {_short(expected)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"


def now_ms() -> float:
    return time.time() * 1000


def say(word: str) -> None:
    """Something that the runner waits for, as a line of its own."""
    print(word, file=sys.stderr, flush=True)


def refused(what: str, call: Callable[[], object]) -> tuple[str, int | None]:
    """The call must fail: who refused it (server where the error has a status code), and the code."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever the client raises is a refusal
        code = getattr(error, "code", None)
        return ("server", int(code)) if isinstance(code, int) else ("client", None)
    raise FailedError(f"{what} was not refused")


@dataclass(frozen=True)
class Received:
    message: Any
    at_ms: float
    """Wall clock when the client handed it out."""

    @property
    def text(self) -> str:
        return bytes(self.message.body).decode()


class Listener(MessageListener):  # type: ignore[misc]
    """Keeps what it was given, and answers what ``decide`` says."""

    def __init__(self, decide: Callable[[Any], bool] | None = None, pause_s: float = 0.0) -> None:
        self._decide = decide
        self._pause_s = pause_s
        self._changed = threading.Condition()
        self.received: list[Received] = []

    def consume(self, message: Any) -> ConsumeResult:
        with self._changed:
            self.received.append(Received(message, now_ms()))
            self._changed.notify_all()
        if self._pause_s:
            time.sleep(self._pause_s)
        done = self._decide is None or self._decide(message)
        return ConsumeResult.SUCCESS if done else ConsumeResult.FAILURE

    def wait(self, count: int, timeout_s: float) -> list[Received]:
        """Until there are so many; fails after the timeout."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.received) >= count, timeout_s):
                raise FailedError(f"{len(self.received)} of {count} messages after {timeout_s:g} s")
            return list(self.received)

    def seen(self) -> list[Received]:
        with self._changed:
            return list(self.received)


@dataclass(frozen=True)
class Context:
    """What the command line says, and clients for it."""

    endpoint: str
    topic: str
    group: str
    extra: list[str]
    credentials: Any = field(default_factory=Credentials)

    def number(self, index: int, default: int) -> int:
        return int(self.extra[index]) if len(self.extra) > index else default

    def _configuration(self, namespace: str) -> ClientConfiguration:
        return ClientConfiguration(self.endpoint, self.credentials, namespace, REQUEST_S)

    @contextmanager
    def producer(self, checker: Any = None, namespace: str = "") -> Iterator[Any]:
        client = Producer(self._configuration(namespace), (self.topic,), checker)
        client.startup()
        try:
            yield client
        finally:
            client.shutdown()

    @contextmanager
    def simple(self, expression: Any = None, namespace: str = "") -> Iterator[Any]:
        subscription = {self.topic: expression or FilterExpression()}
        client = SimpleConsumer(self._configuration(namespace), self.group, subscription, AWAIT_S)
        client.startup()
        try:
            yield client
        finally:
            client.shutdown()

    @contextmanager
    def push(self, listener: Listener, expression: Any = None) -> Iterator[Any]:
        subscription = {self.topic: expression or FilterExpression()}
        client = PushConsumer(self._configuration(""), self.group, listener, subscription)
        client.startup()
        try:
            yield client
        finally:
            client.shutdown()

    def message(
        self,
        body: str | bytes,
        *,
        tag: str | None = None,
        keys: tuple[str, ...] = (),
        properties: dict[str, str] | None = None,
        group: str | None = None,
        due_s: int | None = None,
    ) -> Any:
        """A message for the topic. ``due_s``: whole seconds since the epoch, which is all that this client can say."""
        made = Message()
        made.topic = self.topic
        made.body = body.encode() if isinstance(body, str) else body
        if tag is not None:
            made.tag = tag
        for key in keys:
            made.keys = key  # each assignment adds one
        for name, value in (properties or {}).items():
            made.add_property(name, value)
        if group is not None:
            made.message_group = group
        if due_s is not None:
            made.delivery_timestamp = due_s
        return made


def receive(consumer: Any, count: int, timeout_s: float, invisible_s: int = INVISIBLE_S) -> list[Received]:
    """So many messages, in the order in which they came, not acknowledged."""
    deadline = time.monotonic() + timeout_s
    found: list[Received] = []
    while len(found) < count:
        check(time.monotonic() < deadline, f"{len(found)} of {count} messages after {timeout_s:g} s")
        messages = consumer.receive(16, invisible_s)
        at_ms = now_ms()
        found += [Received(message, at_ms) for message in messages or ()]
    same("messages received", len(found), count)
    return found


def drain(consumer: Any, count: int, timeout_s: float) -> list[Received]:
    """So many messages, each acknowledged as it comes."""
    deadline = time.monotonic() + timeout_s
    found: list[Received] = []
    while len(found) < count:
        check(time.monotonic() < deadline, f"{len(found)} of {count} messages after {timeout_s:g} s")
        for message in consumer.receive(16, INVISIBLE_S) or ():
            found.append(Received(message, now_ms()))
            consumer.ack(message)
    return found


def nothing(consumer: Any, seconds: float = QUIET_S) -> None:
    """Nothing may come for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        came = consumer.receive(16, INVISIBLE_S) or ()
        check(not came, f"something is left: {[bytes(message.body)[:40] for message in came]}")


def finish(facts: Facts) -> None:
    print(json.dumps(facts, ensure_ascii=False), flush=True)
