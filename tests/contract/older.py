"""What a client and a broker say to each other in a short life, with every action that has an answer worth reading.

``PYTHONPATH=RELEASE/src python -m tests.contract.older FILE`` writes down what a release says; the file is kept in
``tests/contract/releases``, and test_older_release.py holds today's client and broker against it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.contract.conftest import Served
from tests.waiting import wait_until

from tarry.base.errors import TarryError
from tarry.client import Client
from tarry.client.connection import BrokerConnection
from tarry.fronts.flight.requests import ACTIONS
from tarry.link.frames import FrameKind
from tarry.link.peer import OnAnswer

HOUR_MS = 3_600_000


class Recorder:
    """Keeps the last request and answer of each action of this process."""

    def __init__(self) -> None:
        self.said: dict[str, dict[str, Any]] = {}
        self._ask = BrokerConnection.ask_from_anywhere

    def __enter__(self) -> Recorder:
        said, ask = self.said, self._ask

        def recorded(
            self: BrokerConnection, kind: FrameKind, payload: bytes, on_answer: OnAnswer, on_asked: Any = None
        ) -> None:
            request = json.loads(payload) if kind is FrameKind.CALL else {}
            name = request.pop("op", None)

            def answered(answer: memoryview | TarryError) -> None:
                if name in ACTIONS and not isinstance(answer, TarryError):
                    said[name] = {"request": request or None, "answer": json.loads(bytes(answer))}
                on_answer(answer)

            ask(self, kind, payload, answered, on_asked)

        BrokerConnection.ask_from_anywhere = recorded  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        BrokerConnection.ask_from_anywhere = self._ask  # type: ignore[method-assign]


def live(client: Client, staged: BrokerConnection) -> None:
    """Use the actions once, so that none of the answers is empty."""
    client.set_group("t", "g", tries=1, retry="fixed 1s", filter="*", inflight_max=10, lease_ms=5000, start="earliest")
    client.set_topic("t", late="deliver", lateness_ms_max=HOUR_MS, ordered=False, declared=True)
    receipt = client.schedule("t", b"later", delay="1h", key="k", id="i")
    client.reschedule_key("t", "k", delay="2h")
    client.find_key("t", "k")
    client.schedule("t", b"far", due=receipt.due_ms)
    client.forecast(unit="hour", topic="t")
    client.get_handles([receipt.seq], [receipt.due_ms])
    client.history(receipt.handle, topic="t")
    client.cancel_key("t", "k")
    client.cancel(receipt.handle)
    for _ in range(3):
        client.schedule("t", b"now")
    for settle in ("ack", "extend", "nack"):
        [message] = client.receive("t", group="g", wait=60)
        getattr(message, settle)(*(["1m"] if settle == "extend" else []))
        client.flush()
    wait_until(lambda: client.group_info("t", "g").dead)
    client.groups("t")
    client.topic_info("t")
    client.has_topic("t")
    client.pause("t", "g")
    client.resume("t", "g")
    client.respawn("t", "g")
    client.purge("t", "g")
    client.seek("t", "g", "latest")
    client.queue_state(["t"])
    client.offset_at("t", 0)
    client.follow_queue("t", "h")
    client.advance_group("t", "h", 1)
    client.delete_group("t", "h")
    client.pending()
    client.status()
    client.overview()
    client.ping()

    def act(op: str, **fields: Any) -> Any:
        asked = json.dumps({"op": op, **fields}).encode()
        return json.loads(bytes(staged.question(FrameKind.CALL, asked).wait(10)))

    attempt = act("bulk-begin", job="j")["number"]
    act("bulk-reserve", number=attempt, rows=1)
    act("bulk-abort", number=attempt)
    client.jobs()
    client.cancel_job("j")
    token = client.create_token("ns", "whose")
    client.tokens("ns")
    client.limit_token(token.id, reads_max=5, writes_max=5, interval_ms=1000)
    client.delete_token(token.id)
    client.set_push("p", topic="t", url="https://example.com/x")
    client.push_info("p")
    client.push_subscriptions()
    client.push_attempts("p")
    client.delete_push("p")


def record(served: Served) -> dict[str, dict[str, Any]]:
    """What was said, by action."""
    with Recorder() as recorder, Client(served.address) as client:
        live(client, BrokerConnection(served.address))
    return recorder.said


def main(path: str) -> None:
    """Write a release's down."""
    with tempfile.TemporaryDirectory() as directory:
        served = Served(Path(directory) / "data")
        try:
            said = record(served)
        finally:
            served.stop()
    Path(path).write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
