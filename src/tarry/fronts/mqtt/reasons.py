"""Reason codes of MQTT 5, their nearest codes in 3.1.1, and the error that ends a connection."""

from __future__ import annotations

from enum import IntEnum

from tarry.base.errors import (
    DiskFullError,
    ForbiddenError,
    InvalidArgumentError,
    OverloadedError,
    TarryError,
    UnauthenticatedError,
)


class Reason(IntEnum):
    """Reason codes that this front sends (MQTT 5, section 2.4)."""

    SUCCESS = 0x00
    NO_SUBSCRIPTION = 0x11
    UNSPECIFIED = 0x80
    MALFORMED = 0x81
    PROTOCOL_ERROR = 0x82
    NOT_ACCEPTED = 0x83
    UNSUPPORTED_VERSION = 0x84
    CLIENT_ID_INVALID = 0x85
    BAD_LOGIN = 0x86
    NOT_AUTHORIZED = 0x87
    BAD_AUTHENTICATION_METHOD = 0x8C
    SHUTTING_DOWN = 0x8B
    KEEP_ALIVE_TIMEOUT = 0x8D
    TAKEN_OVER = 0x8E
    FILTER_INVALID = 0x8F
    TOPIC_INVALID = 0x90
    TOPIC_ALIAS_INVALID = 0x94
    TOO_LARGE = 0x95
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE = 0x98
    RETAIN_UNSUPPORTED = 0x9A
    QOS_UNSUPPORTED = 0x9B
    WILDCARDS_UNSUPPORTED = 0xA2


CONNACK_3 = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_VERSION: 1,
    Reason.CLIENT_ID_INVALID: 2,
    Reason.BAD_LOGIN: 4,
    Reason.NOT_AUTHORIZED: 5,
}
"""Return codes of a CONNACK in 3.1.1; any other reason is 3, server unavailable."""


class MqttError(Exception):
    """A packet that ends the connection, or a request that is refused."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def reason_of(error: TarryError | MqttError) -> Reason:
    """Return the reason code by which a client is told of an error.

    UNSPECIFIED: it does not say that nothing was done.
    """
    if isinstance(error, MqttError):
        return error.reason
    if isinstance(error, OverloadedError | DiskFullError):
        return Reason.QUOTA_EXCEEDED
    if isinstance(error, UnauthenticatedError | ForbiddenError):
        return Reason.NOT_AUTHORIZED
    return Reason.NOT_ACCEPTED if isinstance(error, InvalidArgumentError) else Reason.UNSPECIFIED
