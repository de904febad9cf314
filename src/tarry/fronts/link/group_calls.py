"""Calls on groups: they are found or made, and who asked may be told of their changes from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tarry.api.audit import AskedBy
from tarry.api.consuming import ConsumerGroup
from tarry.api.operations.delivery import Subscribe
from tarry.api.parsing import from_json
from tarry.api.wire import decode_json, decode_request, encode_json
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.kit.known_errors import known
from tarry.fronts.kit.receiving import lease_ms_of
from tarry.fronts.link.flow import Flow
from tarry.fronts.link.groups import Listener, ServedGroup
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.shared import Shared
from tarry.identity.checks import check_request
from tarry.identity.principal import Principal
from tarry.link.frames import FrameKind, error_frame, frame


class GroupCalls:
    """Group calls of a worker's connection. On the loop's thread.

    ``find_link`` returns the listener that is told of changes of the groups that are named here: the worker's link.

    Raises:
        UnavailableError: by ``find_link``: the worker has none.
    """

    def __init__(self, shared: Shared, out: Outgoing, find_link: Callable[[], Listener]) -> None:
        self._shared, self._out, self._find_link = shared, out, find_link

    def answer(self, number: int, payload: memoryview) -> None:
        """Carry out a GROUP frame."""
        asked = decode_json(bytes(payload))
        if not isinstance(asked, dict) or not isinstance(asked.get("topic"), str) or not asked.get("group"):
            raise InvalidArgumentError(f"a JSON {type(asked).__name__}; allowed: an object with a topic and a group")
        broker, topic, name = self._shared.broker, asked["topic"], str(asked["group"])
        if not asked.get("create"):
            self._describe(number, broker.find_group(topic, name), follow=bool(asked.get("follow")))
            return

        start, broadcast = asked.get("start"), asked.get("broadcast")
        make_group(
            self._shared,
            self._out,
            number,
            lambda: broker.group(topic, name, start=start, broadcast=broadcast),
            lambda group: self._describe(number, group, follow=False),
        )

    def on_state(self, served: ServedGroup, state: dict[str, Any]) -> None:
        """Send a group's changed state."""
        self._out.write(frame(FrameKind.STATE, served.number, encode_json(state)))

    def on_news(self, number: int) -> None:
        """Send that a group whose queue is read by offsets has more messages."""
        self._out.write(frame(FrameKind.NEWS, number))

    def _describe(self, number: int, group: ConsumerGroup, *, follow: bool) -> None:
        served = self._shared.groups.get_or_add(group)
        link = self._find_link()
        served.listeners.add(link)
        if follow:
            # Before the ends are read: later messages are announced.
            self._shared.groups.follow(served, link)
        described = {**served.state(), "number": served.number, "ends": group.queue_ends}
        self._out.write(frame(FrameKind.RESULT, number, encode_json(described)))


class ClientGroupCalls:
    """Group calls of a client, which is not told of changes. On the loop's thread."""

    def __init__(self, shared: Shared, out: Outgoing, flow: Flow, principal: Principal, asked: AskedBy) -> None:
        self._shared, self._out, self._flow, self._principal, self._asked = shared, out, flow, principal, asked

    def answer(self, number: int, payload: memoryview) -> None:
        """Carry out a GROUP frame: the group is made if it is new."""
        request = from_json(Subscribe, decode_request(payload))
        check_request(self._principal, request, self._asked)
        broker = self._shared.broker
        make_group(
            self._shared,
            self._out,
            number,
            lambda: broker.group(request.topic, request.group, start=request.start, broadcast=request.broadcast),
            lambda group: self._describe(number, group),
            self._flow.begin(len(payload), is_call=True),
        )

    def _describe(self, number: int, group: ConsumerGroup) -> None:
        served = self._shared.groups.get_or_add(group)
        lease_ms = lease_ms_of(group, self._shared.broker)
        described = {"number": served.number, "topic": group.topic_name, "group": group.name, "lease_ms": lease_ms}
        self._out.write(frame(FrameKind.RESULT, number, encode_json(described)))


def make_group(
    shared: Shared,
    out: Outgoing,
    number: int,
    make: Callable[[], ConsumerGroup],
    on_made: Callable[[ConsumerGroup], None],
    on_done: Callable[[], None] | None = None,
) -> None:
    """Make a group in a thread, since it waits for the disk; then call ``on_made`` on the loop, or refuse."""

    def done(created: asyncio.Future[ConsumerGroup]) -> None:
        if created.cancelled():
            return
        try:
            on_made(created.result())
        except Exception as error:  # noqa: BLE001  every error goes to the other side, and bugs to the log
            out.write(error_frame(number, known(error)))
        if on_done is not None:
            on_done()

    shared.run_in_thread(make).add_done_callback(done)
