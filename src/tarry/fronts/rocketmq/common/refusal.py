"""How a request is refused: the protocol's own codes, and what the broker's errors are among them.

Source: ``Code`` in apache/rocketmq-apis ``definition.proto``; which of them RocketMQ gives for what is in its
proxy's validators (``GrpcValidator``, ``SendMessageActivity``).
"""

from __future__ import annotations

from tarry.base.errors import (
    ClosedError,
    DelayTooLongError,
    DiskFullError,
    FilterPausedError,
    InvalidArgumentError,
    InvalidMessageError,
    MessageTooLargeError,
    NotFoundError,
    OverloadedError,
    StaleLeaseError,
    TarryError,
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
    # Clients wait a little before they send again; after any other code they do it at once.
    (OverloadedError, Code.TOO_MANY_REQUESTS),
    (FilterPausedError, Code.TOO_MANY_REQUESTS),
    (DiskFullError, Code.TOO_MANY_REQUESTS),
    (ClosedError, Code.HA_NOT_AVAILABLE),
    (UnavailableError, Code.HA_NOT_AVAILABLE),
)


class Refusal(Exception):  # noqa: N818  it is an answer, not a fault of the program
    """Raised in a handler: the client gets ``code`` with ``text``. It is none of ``tarry.base.errors``: it says what
    goes over RocketMQ's wires alone.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @classmethod
    def of(cls, error: TarryError) -> Refusal:
        """The refusal that stands for an error of the broker."""
        code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL_SERVER_ERROR)
        return cls(code, str(error))
