"""Replies that producers wait for: who may be handed one.

A reply names its producer by an id that clients give themselves. Where callers are known, that is not enough: whoever
took another's id would get its replies, and whoever knew it could send some. So a connection gets the replies to those
requests alone that came by it. The request's own id is at random (a UUID, in the official clients).
"""

from __future__ import annotations

from collections.abc import Mapping

from tarry.fronts.rocketmq.classic.connection import RemotingConnection
from tarry.fronts.rocketmq.common.properties import CORRELATION, REPLY_TO


def await_reply(connection: RemotingConnection, properties: Mapping[str, str]) -> None:
    """Note that a client waits for the reply to a message with these properties, if it asks for one."""
    if REPLY_TO in properties:
        connection.awaited.keep(_key(properties), None)


def awaits_reply(connection: RemotingConnection, properties: Mapping[str, str]) -> bool:
    """Return whether a client waits for a reply with these properties."""
    return _key(properties) in connection.awaited


def _key(properties: Mapping[str, str]) -> tuple[str, str]:
    return properties.get(REPLY_TO, ""), properties.get(CORRELATION, "")
