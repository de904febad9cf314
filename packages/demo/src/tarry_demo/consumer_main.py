"""The consumer: a process of its own, so that nothing else of the demo makes its messages look late.

It works as a user's consumer, ``for message in client.consume(…): …; message.ack()``, with a thread a topic, and
records for each message the moment in which the loop got it. Run as ``python -m tarry_demo.consumer_main ADDRESS GROUP
FILE TOPIC…``; it reports its count by lines of JSON on stdout, ends when stdin ends, and then writes an Arrow file.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.base.placement import shorten_turns
from tarry.client import Client, Consumes

REPORT_S = 0.25
END_S = 60.0

DELIVERED = pa.schema(
    [
        ("row", pa.int64()),
        ("seq", pa.int64()),
        ("due_ms", pa.int64()),
        ("handed_out_ns", pa.int64()),
        ("attempt", pa.int64()),
    ]
)
"""One row for each hand-out of a message, in the order of hand-outs within a topic."""


class TopicConsumer(threading.Thread):
    """Consumes one topic until :meth:`close`."""

    def __init__(self, client: Client, topic: str, group: str) -> None:
        super().__init__(name=f"consume-{topic}", daemon=True)
        self._consumer: Consumes = client.consume(topic, group=group)
        self._cells = array("q")
        self.error: Exception | None = None

    def run(self) -> None:
        cells, now_ns = self._cells, time.time_ns
        try:
            for message in self._consumer:
                moment = now_ns()
                cells.extend((int(message.id), message.seq, message.due_ms, moment, message.attempt))
                message.ack()
        except Exception as error:  # noqa: BLE001  main() reports it: a thread has no caller to raise it to
            self.error = error

    @property
    def count(self) -> int:
        """Hand-outs so far."""
        return len(self._cells) // len(DELIVERED)

    def close(self) -> None:
        """Send the last acknowledgements, and end."""
        self._consumer.close()
        self.join(END_S)

    def delivered(self) -> pa.RecordBatch:
        """Return the hand-outs so far. Any thread."""
        # A copy, in one step: while its memory is lent to NumPy the array cannot grow, and the loop would fail.
        cells = np.array(self._cells[:], np.int64).reshape(-1, len(DELIVERED))
        return pa.RecordBatch.from_arrays([pa.array(column.copy()) for column in cells.T], schema=DELIVERED)


def main(arguments: Sequence[str]) -> int:
    """Run the consumer's process; return 0 unless a topic's loop failed."""
    address, group, file, *topics = arguments
    shorten_turns()  # one topic's thread waits less for another's
    client = Client(address)
    consumers = [TopicConsumer(client, topic, group) for topic in topics]
    for consumer in consumers:
        consumer.start()
    ended = threading.Event()
    # The demo's end of the pipe closes when the demo wants it to, and also when it dies: no process is left behind.
    threading.Thread(target=_until_stdin_ends, args=[ended], daemon=True).start()
    while not ended.wait(REPORT_S):
        _report({"count": sum(consumer.count for consumer in consumers)})
    for consumer in consumers:
        consumer.close()
    _write(Path(file), [consumer.delivered() for consumer in consumers])
    client.close()
    errors = [consumer.error for consumer in consumers if consumer.error is not None]
    for error in errors:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
    return 1 if errors else 0


def _until_stdin_ends(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _report(progress: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(progress) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # the demo has ended; stdin ends, too


def _write(path: Path, batches: list[pa.RecordBatch]) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, DELIVERED) as writer:
        for batch in batches:
            writer.write_batch(batch)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TarryError as error:
        sys.exit(f"{error.code}: {error}")
