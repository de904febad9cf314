"""A connection's session from its greeting on: a client's, a worker's link, or its questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from tarry.base.errors import TarryError
from tarry.fronts.kit.admission import Admission
from tarry.fronts.link.flow import Flow
from tarry.fronts.link.outgoing import Outgoing

Handlers: TypeAlias = Mapping[int, Callable[[int, memoryview], None]]
"""Handlers of frames, by kind. Each gets the frame's number and payload.

On the loop's thread; they never wait.
"""


class LinkSession(Protocol):
    """Rights and state of the other side. On the loop's thread."""

    handlers: Handlers

    @property
    def flow(self) -> Flow | None:
        """Bound on what is under way; None: the other side is trusted."""
        ...

    @property
    def welcome(self) -> Mapping[str, Any]:
        """Fields of WELCOME, beside those that all sides get."""
        ...

    def on_writable(self) -> None:
        """Note that the other side begins or ends not to read what it is sent."""
        ...

    def on_drain(self) -> None:
        """End the connection when what is under way is done: the broker stops."""
        ...

    def end(self) -> None:
        """Note that the connection is lost."""
        ...


Refuse: TypeAlias = Callable[[TarryError], None]
"""Tell the other side the reason, and cut the connection off."""
NewLinkSession: TypeAlias = Callable[[Mapping[str, Any], Outgoing, Admission, Refuse], LinkSession]
"""Make the session of a greeting."""
