"""Makes durable rows of the intake visible: to readers, and, if they are due soon, in the wheel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tarry.wheel import Wheel


@dataclass(frozen=True, slots=True)
class WheelPublisher:
    """Publisher for the intake's writer.

    ``wake_loader`` is set when the wheel has grown too large; it may hold about ``wheel_bytes_max``.
    """

    wheel: Wheel
    wake_loader: threading.Event
    wheel_bytes_max: int

    def publish(self, batches: list[tuple[pa.RecordBatch, int]], add: Callable[[], None]) -> None:
        """Publish durable frames (rows and bytes).

        ``add`` is called under the wheel's lock: see :mod:`tarry.wheel.loader` for the rule about which part has a
        message.
        """
        wheel = self.wheel
        prepared = [wheel.prepare(batch, size) for batch, size in batches]
        with wheel.lock:
            add()
            sooner = False
            for arrival in prepared:
                sooner |= wheel.accept(arrival)
            if sooner:
                wheel.lock.notify_all()
            crowded = wheel.is_crowded or wheel.bytes > 1.25 * self.wheel_bytes_max
        if crowded:
            self.wake_loader.set()
