"""How a request is refused: the protocol's own codes, and what the broker's errors are among them.

Source: ``Code`` in apache/rocketmq-apis ``definition.proto``; which of them RocketMQ gives for what is in its
proxy's validators (``GrpcValidator``, ``SendMessageActivity``).
"""

from __future__ import annotations

import logging
from typing import Any

from tarry.base.errors import (
    ClosedError,
    DelayTooLongError,
    DiskFullError,
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

log = logging.getLogger(__name__)

Code = definition.Code
OK = definition.Status(code=Code.OK, message="OK")

_CODES: tuple[tuple[type[TarryError], int], ...] = (
    (DelayTooLongError, Code.ILLEGAL_DELIVERY_TIME),
    (MessageTooLargeError, Code.MESSAGE_BODY_TOO_LARGE),
    (InvalidMessageError, Code.BAD_REQUEST),
    (InvalidArgumentError, Code.BAD_REQUEST),
    (StaleLeaseError, Code.INVALID_RECEIPT_HANDLE),
    (NotFoundError, Code.NOT_FOUND),
    # Clients wait a little before they send again; after any other code they do it at once.
    (OverloadedError, Code.TOO_MANY_REQUESTS),
    (DiskFullError, Code.TOO_MANY_REQUESTS),
    (ClosedError, Code.HA_NOT_AVAILABLE),
    (UnavailableError, Code.HA_NOT_AVAILABLE),
)


class Refusal(Exception):  # noqa: N818  it is an answer, not a fault of the program
    """Raised in a handler: the answer's status is ``code`` with ``text``. It is none of ``tarry.base.errors``: it says
    what goes over this one wire.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @classmethod
    def of(cls, error: TarryError) -> Refusal:
        """What the broker refused, in the protocol's words."""
        code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL_SERVER_ERROR)
        return cls(code, str(error))

    def status(self) -> Any:
        """As a ``Status``."""
        return definition.Status(code=self.code, message=self.text)


def overall(codes: set[int]) -> Any:
    """The status of an answer whose entries have these codes."""
    if codes == {Code.OK}:
        return OK
    code = codes.pop() if len(codes) == 1 else Code.MULTIPLE_RESULTS
    return definition.Status(code=code, message=Code.Name(code))


def refused(answer: Any, error: BaseException, name: str) -> bytes:
    """What went wrong in the call ``name`` as its answer, a message of the class ``answer``. What is no refusal is a
    fault of ours: it is in the log, and the client is told no more than that.
    """
    if isinstance(error, TarryError):
        error = Refusal.of(error)
    if not isinstance(error, Refusal):
        log.error("%s failed", name, exc_info=error)
        error = Refusal(Code.INTERNAL_SERVER_ERROR, f"{name} failed: see the server's log")
    message: bytes = answer(status=error.status()).SerializeToString()
    return message
