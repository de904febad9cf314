"""Errors as EventBridge Scheduler gives them: a code that SDKs know, a status, and a text."""

from __future__ import annotations

from collections.abc import Mapping

from tarry.base.errors import (
    DelayTooLongError,
    ForbiddenError,
    InvalidArgumentError,
    MessageTooLargeError,
    QuotaExceededError,
    TarryError,
    UnauthenticatedError,
)
from tarry.fronts.http.sqs.errors import SqsError

_OF_SIGNATURES: Mapping[str, str] = {
    "InvalidClientTokenId": "UnrecognizedClientException",
    "SignatureDoesNotMatch": "InvalidSignatureException",
    "IncompleteSignature": "IncompleteSignatureException",
    "MissingAuthenticationToken": "MissingAuthenticationTokenException",
}
"""Codes of refused signatures, by those of SQS.

AWS's services that speak JSON over paths have names of their own for them.
"""


class SchedulerError(Exception):
    """A request that is refused."""

    def __init__(self, code: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.code = code
        self.status = status


def invalid(text: str) -> SchedulerError:
    """Return the error of a value that is not allowed."""
    return SchedulerError("ValidationException", text)


def not_found(what: str, name: str) -> SchedulerError:
    """Return the error of a schedule or a group that is not there."""
    return SchedulerError("ResourceNotFoundException", f"{what} {name} does not exist.", 404)


def conflict(text: str) -> SchedulerError:
    """Return the error of what is there already, or is being changed."""
    return SchedulerError("ConflictException", text, 409)


def error_of(error: BaseException) -> SchedulerError:
    """Return a refusal as EventBridge Scheduler would say it.

    What is no refusal is an internal error, without its text.
    """
    if isinstance(error, SchedulerError):
        return error
    if isinstance(error, SqsError):  # of the signature
        return SchedulerError(_OF_SIGNATURES.get(error.code, error.code), str(error), error.status)
    text = str(error)
    match error:
        case QuotaExceededError():
            return SchedulerError("ThrottlingException", text, 429)
        case UnauthenticatedError():
            return SchedulerError("UnrecognizedClientException", text, 403)
        case ForbiddenError():
            return SchedulerError("AccessDeniedException", text, 403)
        case MessageTooLargeError() | DelayTooLongError() | InvalidArgumentError():
            return invalid(text)
        case TarryError():
            return SchedulerError("InternalServerException", text, 503 if error.retryable else 500)
    return SchedulerError("InternalServerException", "The request failed; see the server's log.", 500)
