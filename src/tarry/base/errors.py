"""The one error tree: each error has a stable ``code``, also on the wire, and says if it may pass.

Texts follow one form: what was wrong, with the value, and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal


class TarryError(Exception):
    """Base of all errors that Tarry raises.

    ``code`` is stable across versions and is what programs should match on; ``retryable`` tells whether the same
    call may succeed later without a change.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def to_wire(self) -> dict[str, Any]:
        """Return the error as plain data, for a front to send; :func:`from_wire` is its inverse."""
        return {"code": self.code, "message": str(self)}


class InvalidArgumentError(TarryError):
    """A value that no retry will make valid: a bad delay, topic name, column, limit."""

    code = "invalid_argument"


class InvalidMessageError(InvalidArgumentError):
    """A message was refused; in a batch all of it, and ``row`` is the first offending row."""

    code = "invalid_message"

    def __init__(self, text: str, *, row: int | None = None) -> None:
        super().__init__(text if row is None else f"row {row}: {text}")
        self.row = row

    def of_row(self, row: int | None) -> InvalidMessageError:
        """Return this error for another row, as the caller counts them; None: the caller has one message."""
        text = _ROW.sub("", str(self))
        self.row = row
        self.args = (text if row is None else f"row {row}: {text}",)
        return self


class DelayTooLongError(InvalidMessageError):
    """The due time is beyond the one documented limit (``delay_ms_max``)."""

    code = "delay_too_long"


class MessageTooLargeError(InvalidMessageError):
    """Body, properties, or another field is above its limit."""

    code = "message_too_large"


class KeyExistsError(InvalidMessageError):
    """A message with this key is pending in the topic, and the producer asked to be refused then."""

    code = "key_exists"


class ForgedHandleError(InvalidArgumentError):
    """A handle that is whole and that this broker did not make: forged, or another broker's."""

    code = "forged_handle"


class NotFoundError(TarryError):
    """The thing named does not exist."""

    code = "not_found"


class TrimmedError(NotFoundError):
    """A follower asked for a part of a log that was deleted."""

    code = "trimmed"


LoginReason = Literal[
    "none_shown", "not_known", "expired", "signature", "issuer", "audience", "claims", "gateway", "other"
]
"""The reason for which a credential was not taken, in the audit log and in metrics; stable."""


@dataclass(frozen=True, slots=True)
class LoginRefusal:
    """Particulars of a credential that was not taken, for the audit log; nothing secret."""

    reason: LoginReason = "not_known"
    credential: str | None = None
    """Its id, where it is known."""
    details: Mapping[str, str] = field(default_factory=dict)


class UnauthenticatedError(TarryError):
    """The broker asks who a caller is, and no credential was shown, or one that it does not take.

    ``refusal``: what the audit log has of it, in the broker alone.
    """

    code = "unauthenticated"
    refusal = LoginRefusal()

    def __init__(self, text: str, refusal: LoginRefusal | None = None) -> None:
        super().__init__(text)
        if refusal is not None:
            self.refusal = refusal


class ForbiddenError(TarryError):
    """The caller is known, and may not do this. Nothing was done."""

    code = "forbidden"


class StaleLeaseError(TarryError):
    """The lease has expired, was settled already, or belongs to another delivery: nothing was changed."""

    code = "stale_lease"


class StaleCommitError(TarryError):
    """Another has committed to the store or job, or this plans from an old state. Nothing was done."""

    code = "stale_commit"


class OverloadedError(TarryError):
    """A bounded queue is full. Nothing was accepted; try again."""

    code = "overloaded"
    retryable = True


class QuotaExceededError(OverloadedError):
    """An identity asks for more than its quota. Nothing was done; try again, or have the quota raised."""

    code = "quota_exceeded"

    @property
    def retry_after_s(self) -> float:
        """The seconds after which it may succeed, as the text says it; 1 where nobody can tell."""
        said = _RETRY.search(str(self))
        return float(said[1]) if said else 1.0


class FilterPausedError(TarryError):
    """The group's filter took too long: nothing is handed out for a while, or until it is set again."""

    code = "filter_paused"
    retryable = True


class DiskFullError(TarryError):
    """Free disk is below the watermark: producers are refused, consumers are served. Nothing was accepted."""

    code = "disk_full"
    retryable = True


class UnavailableError(TarryError):
    """The broker is starting, stopping or out of reach.

    What was sent may or may not have been carried out.
    ``nothing_sent``: the request never left, so it was certainly not carried out.
    """

    code = "unavailable"
    retryable = True
    nothing_sent = False

    def __init__(self, text: str, *, nothing_sent: bool = False) -> None:
        super().__init__(f"{text}; nothing was sent" if nothing_sent else text)
        self.nothing_sent = nothing_sent


class ClosedError(UnavailableError):
    """The broker or client object was closed."""

    code = "closed"


class NativeOnlyError(TarryError):
    """The native link alone does this, and the client speaks HTTP, or lacks what the link needs.

    Nothing was done.
    """

    code = "native_only"


class LockedError(TarryError):
    """Another broker has this data directory open, or this store."""

    code = "locked"


class CorruptError(TarryError):
    """A file on disk is damaged in a way that a torn write cannot explain. Names the file and the offset."""

    code = "corrupt"


class FatalError(TarryError):
    """The broker has stopped, for it would risk what it acknowledged (after a failed fsync, above all)."""

    code = "fatal"


class OwnershipLostError(FatalError):
    """This broker has stopped, for its logs are another one's now.

    A request that was under way **may or may not have been carried out**: the next owner knows. A client takes it for a
    lost connection (:class:`UnavailableError`), and looks for that owner.
    """

    code = "ownership_lost"
    retryable = True


class IllegalTransitionError(TarryError):
    """A delivery was asked to change in a way its state does not allow; nothing was changed."""

    code = "illegal_transition"


def _tree(cls: type[TarryError]) -> dict[str, type[TarryError]]:
    errors = {cls.code: cls}
    for sub in cls.__subclasses__():
        errors.update(_tree(sub))
    return errors


def from_wire(code: str, message: str) -> TarryError:
    """Return the error of :meth:`TarryError.to_wire`; an unknown code gives a plain :class:`TarryError`."""
    cls = _tree(TarryError).get(code, TarryError)
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    if isinstance(error, InvalidMessageError):
        prefix = _ROW.match(message)
        error.row = int(prefix[1]) if prefix else None
    return error


_RETRY = re.compile(r"again in ([0-9]{1,9}\.[0-9]) s")
_ROW = re.compile(r"^row ([0-9]{1,18}): ")
