"""Admission control: with too little room in memory or on disk, producers are refused and may retry."""

from __future__ import annotations

import logging
import time

from tarry.base.config import Config
from tarry.base.errors import DiskFullError, OverloadedError
from tarry.broker.health import Health
from tarry.log.files import FREE_CHECK_S, Files
from tarry.wheel import Wheel

log = logging.getLogger(__name__)

CANCEL_PART = 64
"""Cancelling goes on until free disk is below this fraction of ``disk_free_bytes_min``.

It writes little, and makes room in the end. It does not go on down to the last byte, which the registry of names could
not stand (:mod:`tarry.names`).
"""


class Acceptance:
    """Checks whether something may be accepted now. Any thread."""

    def __init__(self, config: Config, files: Files, health: Health, wheel: Wheel) -> None:
        self._config = config
        self._files = files
        self._health = health
        self._wheel = wheel
        self._checked_s = -1.0
        self._free_bytes = 0
        self._refuses = False
        """The disk has too little room for producers, as the log has told."""

    @property
    def free_bytes(self) -> int:
        """Bytes of free disk under the data directory, now."""
        return self._files.free_bytes(self._config.data)

    def check_serving(self) -> None:
        """Check that the broker serves.

        Raises:
            ClosedError, FatalError: the broker does not serve any more.
        """
        self._health.check_serving()

    def check(self) -> None:
        """Check that messages may be accepted now.

        Raises:
            ClosedError, FatalError: the broker does not serve.
            OverloadedError: too much is due at once.
            DiskFullError: free disk is below the watermark.
        """
        # The loader gives up the wheel's far end when it is too full. The part that cannot be given up is due at once,
        # or is made to be by a clock that was set back; then producers must wait for consumers.
        bytes_max = 4 * self._config.wheel_bytes_max
        if self._wheel.bytes > bytes_max:
            self._health.check_serving()
            raise OverloadedError(
                f"{int(self._wheel.bytes) >> 20} MiB of messages are due at once; "
                f"allowed: {bytes_max >> 20} MiB (4 * wheel_bytes_max); try again"
            )
        self.check_disk()

    def check_disk(self, *, is_cancelling: bool = False) -> None:
        """Check as :meth:`check` does, except for the wheel: for calls that take no memory of the wheel."""
        self._health.check_serving()
        now_s = time.monotonic()
        if now_s - self._checked_s > FREE_CHECK_S:
            self._checked_s, self._free_bytes = now_s, self.free_bytes
        free_bytes_min = self._config.disk_free_bytes_min
        if is_cancelling:
            free_bytes_min //= CANCEL_PART
        if self._free_bytes < free_bytes_min:
            raise self._refusal(free_bytes_min, is_cancelling=is_cancelling)
        if self._refuses and not is_cancelling:
            self._refuses = False
            log.info("there is room under %s again: producers are served", self._config.data)

    def _refusal(self, free_bytes_min: int, *, is_cancelling: bool) -> DiskFullError:
        who, of = ("cancelling is", f"1/{CANCEL_PART} of ") if is_cancelling else ("producers are", "")
        why = (
            f"{self._free_bytes >> 20} MiB of disk are free under {self._config.data}; {who} refused below "
            f"{free_bytes_min >> 20} MiB ({of}disk_free_bytes_min)"
        )
        if not (is_cancelling or self._refuses):
            self._refuses = True
            log.warning("%s", why)  # each producer is told; who runs the broker reads its log
        return DiskFullError(f"{why}; try again later")
