"""What a program does with a client, of whichever release it imports: python client_program.py PORT calls | goes-on."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from typing import Any

import tarry
from tarry.errors import TarryError

FAR = "30d"


def calls(client: Any) -> dict[str, Any]:
    """One of each call that programs make."""
    receipts = [client.schedule("orders", f"now {n}", properties={"n": str(n)}) for n in range(4)]
    later = client.schedule("orders", "later", delay=FAR, key="order-7", id="id-7")
    twice = client.schedule("orders", "later", delay=FAR, id="id-7")
    moved = client.schedule("orders", "moved", delay=FAR, key="order-8")
    gone = client.schedule("orders", "gone", delay=FAR)
    said: dict[str, Any] = {
        "scheduled": [each.outcome for each in receipts],
        "duplicate": twice.outcome,
        "cancelled": client.cancel(gone.handle).value,
        "rescheduled": client.reschedule(moved.handle, delay="60d").outcome.value,
        "by key": client.find_key("orders", "order-7").seq == later.seq,
    }
    client.set_group("orders", "billing", tries=2)
    came: list[Any] = []
    with client.consume("orders", group="billing", timeout=30) as consumer:
        for message in consumer:
            came.append((message.body.decode(), message.attempt, message.properties.get("n")))
            if message.body == b"now 3" and len([each for each in came if each[0] == "now 3"]) <= 2:
                message.nack(0)
                if message.attempt == 2:
                    break
                continue
            message.ack()
        consumer.flush()
    said["came"] = sorted(came)
    [received] = client.receive("orders", group="audit", max_messages=1)
    received.extend(60)
    received.ack()
    said["pending"] = {each.topic: each.pending for each in client.pending()}["orders"]
    page = client.list_pending(topic="orders", limit=10)
    said["listed"] = page.rows.num_rows
    said["dead"] = wait_for_dead(client)
    said["state"] = client.status()["state"]
    client.pause("orders", "billing")
    said["paused"] = client.group_info("orders", "billing").paused
    client.resume("orders", "billing")
    said["history"] = len(client.history(later.handle).events) > 0
    return said


def wait_for_dead(client: Any) -> int:
    """A dead letter is copied after the last try was given back."""
    for _ in range(200):
        if count := client.group_info("orders", "billing").dead:
            return int(count)
        threading.Event().wait(0.05)
    return 0


def goes_on(client: Any) -> dict[str, Any]:
    """Schedule and consume until a line comes, whatever becomes of the broker; then until all has come."""
    came: Counter[str] = Counter()
    accepted: list[str] = []
    ending = threading.Event()
    told = threading.Event()

    def consume() -> None:
        while not told.is_set():
            try:
                with client.consume("flow", group="g", timeout=1) as consumer:
                    for message in consumer:
                        came[message.id] += 1
                        message.ack()
            except TarryError:
                continue

    consuming = threading.Thread(target=consume)
    consuming.start()
    threading.Thread(target=lambda: (sys.stdin.readline(), ending.set()), daemon=True).start()
    number = 0
    while not ending.is_set():
        number += 1
        try:
            client.schedule("flow", b"x", id=f"m{number}", delay=0.2)
        except TarryError:
            continue
        accepted.append(f"m{number}")
        if len(accepted) in (50, 200):
            print(json.dumps({"accepted": len(accepted)}), flush=True)
        ending.wait(0.01)
    for _ in range(600):
        if not set(accepted) - came.keys():
            break
        threading.Event().wait(0.1)
    told.set()
    consuming.join(30)
    return {"accepted": len(accepted), "missing": sorted(set(accepted) - came.keys())}


if __name__ == "__main__":
    with tarry.Client(f"127.0.0.1:{sys.argv[1]}") as connected:
        does = {"calls": calls, "goes-on": goes_on}[sys.argv[2]]
        print(json.dumps({"from": tarry.__file__, **does(connected)}), flush=True)
