"""Statuses of answers: of a refusal, of several entries together, and an answer that refuses."""

from __future__ import annotations

import logging
from typing import Any

from tarry.base.errors import TarryError
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.stubs import definition

log = logging.getLogger(__name__)

OK = definition.Status(code=Code.OK, message="OK")


def status_of(refusal: Refusal) -> Any:
    """Return a refusal as a protobuf ``Status``."""
    return definition.Status(code=refusal.code, message=refusal.text)


def overall(codes: set[int]) -> Any:
    """Return the status of an answer whose entries have these codes."""
    if codes == {Code.OK}:
        return OK
    code = codes.pop() if len(codes) == 1 else Code.MULTIPLE_RESULTS
    return definition.Status(code=code, message=Code.Name(code))


def refused(answer: Any, error: BaseException, name: str) -> bytes:
    """Encode an error of the call ``name`` as an answer: a message of the class ``answer``.

    An error that is no refusal is a fault of Tarry's: it is logged, and the client learns no more than that.
    """
    if isinstance(error, TarryError):
        error = Refusal.of(error)
    if not isinstance(error, Refusal):
        log.error("%s failed", name, exc_info=error)
        error = Refusal(Code.INTERNAL_SERVER_ERROR, f"{name} failed: see the server's log")
    message: bytes = answer(status=status_of(error)).SerializeToString()
    return message
