"""Tells gateways of access tokens and identities, as they change: a deleted one opens no door.

Secrets of access keys are told by a Unix socket alone: whoever reaches it is the broker's own user, and could read them
in its directory.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tarry.api.identities import Identity
from tarry.api.wire import encode_json
from tarry.base.errors import InvalidArgumentError
from tarry.base.event_loop import post
from tarry.fronts.gateway.served.broker import ServedBroker
from tarry.fronts.link.link_session import Refuse
from tarry.fronts.link.outgoing import Outgoing
from tarry.link.frames import FrameKind, frame

Listen = Callable[[Callable[[], None]], Callable[[], None]]


class Told:
    """News for all gateways of one port, as JSON; secrets are digests in it. On the loop's thread."""

    def __init__(
        self,
        kind: FrameKind,
        read: Callable[[], Sequence[Any]],
        listen: Listen,
        plain: Callable[[Any], Mapping[str, Any]] = asdict,
    ) -> None:
        """Tell what ``read`` returns, which is another object after each change, of which ``listen`` tells.

        ``plain`` returns what is told of one of them.
        """
        self._kind, self._read, self.listen, self._plain = kind, read, listen, plain
        self._encoded: tuple[Sequence[Any], bytes] | None = None

    def frame(self) -> list[Any]:
        """Return the frame that tells it; it is encoded once for all gateways."""
        now = self._read()
        if self._encoded is None or self._encoded[0] is not now:
            self._encoded = now, encode_json([self._plain(each) for each in now])
        return frame(self._kind, 0, self._encoded[1])


def with_secrets(broker: ServedBroker, identity: Identity) -> dict[str, Any]:
    """Return an identity with the secrets of its access keys, for the broker's own workers."""
    told = asdict(identity)
    for credential in told["credentials"]:
        secret = broker.access_secret(credential["id"])
        if secret is not None:
            credential["secret"] = base64.b64encode(secret).decode()
    return told


class News:
    """Tells one gateway, after WELCOME and until :meth:`stop`. Made on the loop's thread."""

    def __init__(self, told: Told, loop: asyncio.AbstractEventLoop, out: Outgoing) -> None:
        self._told, self._loop, self._out = told, loop, out
        # Listening comes first: a change right now is told twice, and none is missed.
        self.stop = told.listen(self._tell)
        """Tells nothing any more. Any thread."""
        self._tell()

    def _tell(self) -> None:
        # Read where it is written: of two threads that read here, the one with the older state might write last.
        post(self._loop, lambda: self._out.write(self._told.frame()))


def guard(broker: ServedBroker, loop: asyncio.AbstractEventLoop, front: str, refuse: Refuse) -> Callable[[], None]:
    """Refuse a worker whose front cannot ask its callers, where they have to be, now or later.

    Return a function that ends this. On the loop's thread.

    Raises:
        InvalidArgumentError: they have to be asked now.
    """
    error = InvalidArgumentError(
        f"this broker has identities, and the front {front!r:.80} cannot ask who its callers are; allowed: a gateway "
        "of another front, or a broker without identities"
    )

    def look() -> None:
        if broker.identities:
            refuse(error)

    stop = broker.listen_to_identities(lambda: post(loop, look))
    if broker.identities:
        stop()
        raise error
    return stop
