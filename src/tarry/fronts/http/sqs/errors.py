"""Errors as SQS gives them: a code that SDKs know, a text, and who is to blame."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarry.base.errors import (
    DelayTooLongError,
    ForbiddenError,
    InvalidArgumentError,
    MessageTooLargeError,
    NotFoundError,
    QuotaExceededError,
    TarryError,
    UnauthenticatedError,
)

_OLD = "AWS.SimpleQueueService."
_QUERY_CODES: Mapping[str, str] = MappingProxyType(
    {
        "QueueDoesNotExist": _OLD + "NonExistentQueue",
        "QueueNameExists": "QueueAlreadyExists",
        **{
            code: _OLD + code
            for code in (
                *("BatchEntryIdsNotDistinct", "EmptyBatchRequest", "TooManyEntriesInBatchRequest"),
                *("BatchRequestTooLong", "InvalidBatchEntryId", "MessageNotInflight", "UnsupportedOperation"),
            )
        },
    }
)
"""Codes of the query protocol by those of JSON, where they differ. SDKs compare with these."""


class SqsError(Exception):
    """A request, or an entry of a batch, that is refused."""

    def __init__(self, code: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.code = code
        """As in the JSON protocol."""
        self.status = status

    @property
    def query_code(self) -> str:
        """The code in the query protocol, which JSON answers repeat in a header."""
        return _QUERY_CODES.get(self.code, self.code)

    @property
    def is_senders(self) -> bool:
        """True if a retry does not help."""
        return self.status < 500


def invalid(text: str) -> SqsError:
    """Return the error of a parameter whose value is not allowed."""
    return SqsError("InvalidParameterValue", text)


def missing(name: str) -> SqsError:
    """Return the error of a parameter that is needed."""
    return SqsError("MissingParameter", f"The request must contain the parameter {name}.")


def no_queue() -> SqsError:
    """Return the error of a queue that is not there."""
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.")


def error_of(error: BaseException) -> SqsError:
    """Return the broker's refusal as SQS would say it; what is no refusal is an internal error, without its text."""
    if isinstance(error, SqsError):
        return error
    if not isinstance(error, TarryError):
        return SqsError("InternalFailure", "The request failed for an internal error; see the server's log.", 500)
    text = str(error)
    if isinstance(error, QuotaExceededError):
        return SqsError("RequestThrottled", text, 429)
    if isinstance(error, UnauthenticatedError):
        return SqsError("InvalidClientTokenId", text, 403)
    if isinstance(error, ForbiddenError):
        return SqsError("AccessDeniedException", text, 403)
    if isinstance(error, NotFoundError):
        return no_queue()
    if isinstance(error, MessageTooLargeError | DelayTooLongError | InvalidArgumentError):
        return invalid(text)
    if error.retryable:
        return SqsError("ServiceUnavailable", text, 503)
    return SqsError("InternalFailure", text, 500)
