"""A gateway's calls on groups: it finds or makes them, and is told of their changes from then on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tarry.api.consuming import ConsumerGroup
from tarry.api.wire import decode_json, encode_json
from tarry.base.errors import InvalidArgumentError, TarryError, UnavailableError
from tarry.fronts.gateway.frames import FrameKind, error_frame, frame
from tarry.fronts.gateway.served.groups import ServedGroup
from tarry.fronts.gateway.served.outgoing import INTERNAL, Outgoing
from tarry.fronts.gateway.served.shared import Shared

log = logging.getLogger(__name__)


class GroupCalls:
    """Group calls of one connection. On the loop's thread.

    Changes of a group named on any connection of a worker are sent on its link.
    """

    def __init__(self, shared: Shared, worker: str, out: Outgoing) -> None:
        self._shared, self._worker, self._out = shared, worker, out

    def answer(self, number: int, payload: memoryview) -> None:
        """Carry out a GROUP frame."""
        asked = decode_json(bytes(payload))
        if not isinstance(asked, dict) or not isinstance(asked.get("topic"), str) or not asked.get("group"):
            raise InvalidArgumentError(f"{bytes(payload[:80])!r}; allowed: an object with a topic and a group")
        broker, topic, name = self._shared.broker, asked["topic"], str(asked["group"])
        if not asked.get("create"):
            self._describe(number, broker.find_group(topic, name), follow=bool(asked.get("follow")))
            return

        def create() -> ConsumerGroup:
            return broker.group(topic, name, start=asked.get("start"), broadcast=asked.get("broadcast"))

        def done(created: asyncio.Future[ConsumerGroup]) -> None:
            if created.cancelled():
                return
            error = created.exception()
            if error is None:
                self._describe(number, created.result(), follow=False)
            elif isinstance(error, TarryError):
                self._out.write(error_frame(number, error))
            else:
                log.error("making a group failed", exc_info=error)
                self._out.write(error_frame(number, INTERNAL))

        self._shared.run_in_thread(create).add_done_callback(done)

    def on_state(self, served: ServedGroup, state: dict[str, Any]) -> None:
        """Send a group's changed state."""
        self._out.write(frame(FrameKind.STATE, served.number, encode_json(state)))

    def on_news(self, number: int) -> None:
        """Send that a group whose queue is read by offsets has more messages."""
        self._out.write(frame(FrameKind.NEWS, number))

    def _describe(self, number: int, group: ConsumerGroup, *, follow: bool) -> None:
        served = self._shared.groups.get_or_add(group)
        link = self._shared.links.get(self._worker)
        if link is None:
            self._out.write(error_frame(number, UnavailableError(f"worker {self._worker} has no link")))
            return
        served.listeners.add(link)
        if follow:
            # Before the ends are read: later messages are announced.
            self._shared.groups.follow(served, link)
        described = {**served.state(), "number": served.number, "ends": group.queue_ends}
        self._out.write(frame(FrameKind.RESULT, number, encode_json(described)))
