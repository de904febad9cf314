"""A broker as one might find it: tens of thousands of messages over days, herds, groups with lag, dead letters, series.

``python -m tests.browser.scene DIRECTORY`` serves one, to look at.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa

from tarry.base.clock import SystemClock
from tarry.broker import Broker
from tarry.broker.minute_files import Minute, MinuteFigures, MinuteWriter
from tarry.fronts.http.front import HttpFront
from tarry.fronts.push.front import PushFront
from tarry.fronts.registry import ServerConfig
from tarry.repeat import Repeat

HOUR_MS = 3_600_000
HOSTILE = '<script>document.title="hit"</script><img src=x onerror="document.title=\'hit\'">'
REASONS = (
    "smtp.example:25 refused after {} ms: connection timed out",
    "smtp.example:25 refused after {} ms: connection timed out",
    'ValueError: no address in mail {}\nTraceback (most recent call last):\n  File "mail.py", line 12, in send',
    "",
)
TURNED = "abc\u202etxt.exe\u202c"


def fill(broker: Broker, *, rows: int = 40_000) -> None:
    """Schedule what is to come."""
    chance, now_ms = random.Random(7), broker.clock.now_ms()
    day_ms = 24 * HOUR_MS

    def orders(count: int) -> list[dict[str, object]]:
        made = []
        for number in range(count):
            # More by day than by night, and less the farther away.
            due_ms = now_ms + int(min(chance.expovariate(1 / (0.9 * day_ms)), 20 * day_ms)) + 30_000
            hour = due_ms % day_ms / HOUR_MS
            if chance.random() > 0.35 + 0.65 * max(0, 1 - abs(hour - 14) / 9):
                due_ms += int(chance.uniform(4, 9) * HOUR_MS)
            body = {"order": f"A-{100_000 + number}", "customer": chance.randint(1000, 9999), "reminder": "unpaid"}
            made.append({"body": json.dumps(body).encode(), "due_ms": due_ms})
        return made

    for topic, share in (("orders.reminder", 0.6), ("sessions.expire", 0.25), ("shop/carts", 0.1), ("emails", 0.05)):
        schedule(broker, topic, orders(int(rows * share)))
    for hours, count in ((5, 3200), (26, 5400), (31, 1500)):
        due_ms = (now_ms // HOUR_MS + hours) * HOUR_MS
        schedule(broker, "campaign", [{"body": b'{"mail": "autumn sale"}', "due_ms": due_ms}] * count)
    rules = {
        "daily-report": Repeat.cron("0 9 * * MON-FRI", "Europe/Berlin"),
        "heartbeat": Repeat.every("1m"),
        "cleanup": Repeat.cron("30 3 * * *", "UTC"),
        "retry-sync": Repeat.every("5m", factor=2, times=12),
        "invoices": Repeat.cron("0 6 1 * *", "Europe/Berlin"),
    }
    for key, rule in rules.items():
        broker.schedule("jobs", json.dumps({"run": key}), key=key, repeat=rule)
    broker.schedule("emails", b'{"to": "ada@example.com"}', delay="3h", key="mail-17", id="mail-17", tag="vip")


def fill_past(data: Path, now_ms: int, *, days: float = 9) -> None:
    """Write a history as of a broker that has run for days, and was stopped for a night."""
    chance, writer, pending = random.Random(5), MinuteWriter(data), 42_000
    last = now_ms // 60_000
    for number in range(last - int(days * 1440), last):
        if last - 2000 < number < last - 1500 or last - 22 < number < last - 14:
            continue  # stopped
        hour = number % 1440 / 60
        level = 0.3 + max(0.0, 1 - abs(hour - 14) / 9) + chance.uniform(0, 0.2)
        accepted, herd = int(60 * 25 * level), 4000 if number % 360 == 0 else 0
        pending += chance.randint(-300, 320)
        busy = number % 700 < 60  # the consumer is slow for an hour
        handed_out = int(accepted * (0.7 if busy else 1)) + herd
        lag = (number % 700) * int(accepted * 0.3) if busy else chance.randint(0, 40)
        late = (chance.randint(1, 3), chance.randint(4, 9) + 200 * busy, chance.randint(12, 30) + 900 * busy)
        half = (accepted // 2, accepted // 2, handed_out // 2, handed_out // 2)
        orders = MinuteFigures(*half, 30_000, lag, 12, *late)
        rest = MinuteFigures(*half, pending - 30_000, 0, 0, *late)
        whole = MinuteFigures(accepted, accepted + herd, handed_out, handed_out, pending, lag, 12, *late)
        topics = {"orders.reminder": orders, "sessions.expire": rest}
        writer.write(Minute(number, 60_000, whole, topics, 0, max(herd, chance.randint(1, 9)), number * 60_000))
    writer.close()


@contextmanager
def pushing(broker: Broker) -> Iterator[None]:
    """Push subscriptions: one that goes well but for some, one whose receiver is away, one that is paused."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiver, PushFront.start(broker):
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        port, gone = receiver.server_port, "http://127.0.0.1:9/orders?key=not-shown"
        broker.set_push("shop-events", topic="shop/carts", url=f"http://127.0.0.1:{port}/events", per_second=5)
        broker.set_push("erp", topic="orders.reminder", url=gone, tries=2, retry="fixed 1s", breaker_failures=5)
        broker.set_push("newsletter", topic="campaign", url=f"http://127.0.0.1:{port}/mail", headers={"X-Team": "crm"})
        broker.pause_push("newsletter", "the receiver moves house")
        try:
            yield
        finally:
            receiver.shutdown()
            thread.join()


class Receiver(BaseHTTPRequestHandler):
    """Takes nine of ten."""

    def do_POST(self) -> None:
        """Answer by what the message is."""
        self.rfile.read(int(self.headers["content-length"]))
        body = b"the cart is being merged" if self.headers["webhook-id"].endswith("0") else b""
        self.send_response(500 if body else 204)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def schedule(broker: Broker, topic: str, rows: list[dict[str, object]]) -> None:
    """Rows of body and due_ms."""
    due_ms = pa.array([row["due_ms"] for row in rows], pa.int64())
    bodies = pa.array([row["body"] for row in rows], pa.binary())
    topics = pa.array([topic] * len(rows), pa.string())
    broker.schedule_batch(pa.RecordBatch.from_arrays([topics, bodies, due_ms], names=["topic", "body", "due_ms"]))


def fill_groups(broker: Broker) -> None:
    """Groups that lag, one that is paused, and dead letters."""
    for topic, count in (("orders.reminder", 420), ("emails", 96), ("shop/carts", 1300), ("sessions.expire", 25)):
        now_ms = broker.clock.now_ms()
        schedule(broker, topic, [{"body": b'{"n": %d}' % n, "due_ms": now_ms + 300 + n} for n in range(count)])
    broker.set_group("orders.reminder", "billing", tries=5, retry="exponential 1s max 1h")
    broker.set_group("orders.reminder", "analytics", lease_ms=60_000)
    broker.set_group("shop/carts", "recommender", paused=True)
    broker.set_group("emails", "mailer", tries=1, retry="fixed 1s")
    broker.set_group("sessions.expire", "sessions")
    settle(broker, "orders.reminder", "billing", 380, handed_out=24)
    settle(broker, "sessions.expire", "sessions", 25)
    settle(broker, "emails", "mailer", 60)
    bury(broker, "emails", "mailer", 12)


def settle(broker: Broker, topic: str, group: str, count: int, *, handed_out: int = 0) -> None:
    """Receive and acknowledge some; then receive others, and keep them."""
    done = 0
    while done < count:
        got = broker.receive(topic, group, max_messages=count - done, wait_ms=5000)
        _ack(broker, topic, group, got)
        done += got.num_rows
    if handed_out:
        broker.receive(topic, group, max_messages=handed_out, wait_ms=5000, lease_ms=600_000)


def _ack(broker: Broker, topic: str, group: str, got: pa.RecordBatch) -> None:
    broker.ack(topic, group, got.column("lease").to_numpy(), got.column("offset").to_numpy())


def bury(broker: Broker, topic: str, group: str, count: int) -> None:
    """Give messages back that have no try left."""
    done = 0
    while done < count:
        got = broker.receive(topic, group, wait_ms=5000)
        lease, offset = got.column("lease").to_numpy(), got.column("offset").to_numpy()
        broker.nack(topic, group, lease, offset, reason=REASONS[done % len(REASONS)].format(1000 + done))
        done += got.num_rows


class Traffic:
    """A trickle of messages through a consumer that waits for them, in a thread, until it is stopped."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        chance = random.Random(3)
        while not self._ending.wait(0.1):
            now_ms = self._broker.clock.now_ms()
            count = chance.randint(15, 40)
            rows = [{"body": b"{}", "due_ms": now_ms + chance.randint(200, 4000)} for _ in range(count)]
            schedule(self._broker, "sessions.expire", rows)  # type: ignore[arg-type]

    def _consume(self) -> None:
        while not self._ending.is_set():
            got = self._broker.receive("sessions.expire", "sessions", max_messages=500, wait_ms=200)
            if got.num_rows:
                _ack(self._broker, "sessions.expire", "sessions", got)


def main(directory: str, address: str = "127.0.0.1:7799") -> None:
    """Serve it until Enter is pressed."""
    config = ServerConfig(data=Path(directory), pipeline="off", http=address, push_private_addresses="127.0.0.0/8")
    fill_past(config.data, SystemClock().now_ms())
    with Broker.open(config) as broker:
        fill(broker)
        fill_groups(broker)
        with pushing(broker), Traffic(broker), HttpFront.start(broker, address) as front:
            print(f"http://{front.address}/", flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
