"""Refusals of requests: the protocol's codes, and the broker's errors as such codes.

Source: ``Code`` in apache/rocketmq-apis ``definition.proto``; RocketMQ's proxy has the cases of each code in its
validators (``GrpcValidator``, ``SendMessageActivity``).
"""

from __future__ import annotations

from tarry.base.errors import (
    ClosedError,
    DelayTooLongError,
    DiskFullError,
    FilterPausedError,
    ForbiddenError,
    InvalidArgumentError,
    InvalidMessageError,
    MessageTooLargeError,
    NotFoundError,
    OverloadedError,
    OwnershipLostError,
    StaleLeaseError,
    TarryError,
    UnauthenticatedError,
    UnavailableError,
)
from tarry.fronts.rocketmq.common.stubs import definition

Code = definition.Code

_CODES: tuple[tuple[type[TarryError], int], ...] = (
    (DelayTooLongError, Code.ILLEGAL_DELIVERY_TIME),
    (MessageTooLargeError, Code.MESSAGE_BODY_TOO_LARGE),
    (InvalidMessageError, Code.BAD_REQUEST),
    (InvalidArgumentError, Code.BAD_REQUEST),
    (StaleLeaseError, Code.INVALID_RECEIPT_HANDLE),
    (NotFoundError, Code.NOT_FOUND),
    (UnauthenticatedError, Code.UNAUTHORIZED),
    (ForbiddenError, Code.FORBIDDEN),
    # Clients wait a little before they send again; after any other code they do so at once.
    (OverloadedError, Code.TOO_MANY_REQUESTS),
    (FilterPausedError, Code.TOO_MANY_REQUESTS),
    (DiskFullError, Code.TOO_MANY_REQUESTS),
    (ClosedError, Code.HA_NOT_AVAILABLE),
    (UnavailableError, Code.HA_NOT_AVAILABLE),
    (OwnershipLostError, Code.HA_NOT_AVAILABLE),
)


class Refusal(Exception):  # noqa: N818  it is an answer, not a fault of the program
    """Raised in a handler: the client gets ``code`` with ``text``.

    It is not in ``tarry.base.errors``, since it is only used on RocketMQ's wires.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @classmethod
    def of(cls, error: TarryError) -> Refusal:
        """Return the refusal for an error of the broker."""
        code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL_SERVER_ERROR)
        return cls(code, str(error))
