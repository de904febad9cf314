"""Statuses of answers: a refusal's, that of several entries together, and a whole answer that refuses."""

from __future__ import annotations

import logging
from typing import Any

from tarry.base.errors import TarryError
from tarry.fronts.rocketmq.common.refusal import Code, Refusal
from tarry.fronts.rocketmq.common.stubs import definition

log = logging.getLogger(__name__)

OK = definition.Status(code=Code.OK, message="OK")


def status_of(refusal: Refusal) -> Any:
    """A refusal as a protobuf ``Status``."""
    return definition.Status(code=refusal.code, message=refusal.text)


def overall(codes: set[int]) -> Any:
    """The status of an answer whose entries have these codes."""
    if codes == {Code.OK}:
        return OK
    code = codes.pop() if len(codes) == 1 else Code.MULTIPLE_RESULTS
    return definition.Status(code=code, message=Code.Name(code))


def refused(answer: Any, error: BaseException, name: str) -> bytes:
    """What went wrong in the call ``name`` as its answer, a message of the class ``answer``. What is no refusal is a
    fault of ours: it is in the log, and the client learns no more than that.
    """
    if isinstance(error, TarryError):
        error = Refusal.of(error)
    if not isinstance(error, Refusal):
        log.error("%s failed", name, exc_info=error)
        error = Refusal(Code.INTERNAL_SERVER_ERROR, f"{name} failed: see the server's log")
    message: bytes = answer(status=status_of(error)).SerializeToString()
    return message
