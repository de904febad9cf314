"""Two keys of different rights: what each may do, and what is refused. A line for each, which the runner judges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Never

from rocketmq import Credentials

from .base import INVISIBLE_S, Context, Facts, check, drain

ANSWERED_S = 20
"""For what has to be answered or refused."""


def two_keys(context: Context) -> Facts:
    """More words: another topic, the sender's key and secret, the receiver's key and secret."""
    check(len(context.extra) >= 5, "more words: OTHER_TOPIC SENDER SECRET RECEIVER SECRET")
    other, sender_key, sender_secret, receiver_key, receiver_secret = context.extra[:5]
    sender = replace(context, credentials=Credentials(sender_key, sender_secret))
    receiver = replace(context, credentials=Credentials(receiver_key, receiver_secret))
    _say("send", lambda: _send(sender))
    _say("receive", lambda: _receive(receiver))
    _say("receive-by-sender", lambda: _receive(sender))
    _say("send-by-receiver", lambda: _send(receiver))
    _say("send-elsewhere", lambda: _send(replace(sender, topic=other)))
    _say("receive-elsewhere", lambda: _receive(replace(receiver, topic=other)))
    _say("receive-as-others", lambda: _receive(replace(receiver, group=f"{context.group}-others")))
    nobody = replace(context, credentials=Credentials())
    _say("anonymous-sends", lambda: _send(replace(nobody, topic=other)))
    _say("anonymous-sends-elsewhere", lambda: _send(nobody))
    _say("anonymous-receives", lambda: _receive(nobody))
    _say("wrong-secret-sends", lambda: _send(replace(sender, credentials=Credentials(sender_key, "wrong"))))
    _say("wrong-secret-receives", lambda: _receive(replace(receiver, credentials=Credentials(receiver_key, "wrong"))))
    _until_revoked(sender, receiver)
    _say("revoked-sends", lambda: _send(sender))
    _say("revoked-receives", lambda: _receive(receiver))
    return {}


def _say(name: str, act: Callable[[], object]) -> None:
    answers: list[str] = []

    def run() -> None:
        try:
            act()
            answers.append("done")
        except Exception as error:  # noqa: BLE001 - whatever the client raises is a refusal
            answers.append("refused: " + " ".join(str(error).split()))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ANSWERED_S)
    print(f"{name}: {answers[0] if answers else f'no answer in {ANSWERED_S} s'}", flush=True)


def _send(context: Context) -> None:
    with context.producer() as producer:
        producer.send(context.message("hello"))


def _receive(context: Context) -> None:
    """One message, acknowledged."""
    with context.simple() as consumer:
        drain(consumer, 1, ANSWERED_S)


def _until_revoked(sender: Context, receiver: Context) -> None:
    """Both run when "ready" is said, for the runner to remove their keys."""
    with sender.producer() as producer, receiver.simple() as consumer:
        producer.send(sender.message("hello"))
        drain(consumer, 1, ANSWERED_S)
        print("ready", flush=True)

        def receive() -> Never:
            while True:
                for message in consumer.receive(16, INVISIBLE_S) or ():
                    consumer.ack(message)

        def send() -> Never:
            while True:
                producer.send(sender.message("hello"))
                time.sleep(0.05)

        received = threading.Thread(target=_say, args=("running-receiver", receive))
        received.start()
        _say("running-sender", send)
        received.join()


SCENARIOS = {"identities": two_keys}
