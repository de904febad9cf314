"""Tells a gateway the access tokens, and again when they change: a deleted one must open no door."""

from __future__ import annotations

from dataclasses import asdict

from tarry.api.wire import encode_json
from tarry.fronts.gateway.served.broker import ServedBroker
from tarry.fronts.link.outgoing import Outgoing
from tarry.link.frames import FrameKind, frame


class TokenNews:
    """Tells one gateway, from now until :meth:`stop`. Any thread."""

    def __init__(self, broker: ServedBroker, out: Outgoing) -> None:
        self._broker, self._out = broker, out
        # Listening comes first: a change right now is told twice, and none is missed.
        self.stop = broker.listen_to_tokens(self._tell)
        """Tells nothing any more."""
        self._tell()

    def _tell(self) -> None:
        tokens = [asdict(token) for token in self._broker.access_tokens]
        self._out.write_from_anywhere(frame(FrameKind.TOKENS, 0, encode_json(tokens)))
