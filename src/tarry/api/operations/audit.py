"""The audit log: who changed what, and who was refused."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from annotated_types import Ge, Le

from tarry.api.audit import AUDIT_OUTCOMES, AuditRecord
from tarry.api.needs import OnBroker, Right
from tarry.api.operation import Action, Int64, Natural, Operation, data, many
from tarry.base.errors import InvalidArgumentError

LIMIT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ReadAuditLog(Operation[list[AuditRecord]]):
    """The newest lines of the audit log that a filter lets through, oldest first.

    Args:
        since_ms: from this instant on.
        until_ms: before this instant.
        who: of this caller.
        identity: of this identity: what it did, and what was done to it and its credentials.
        operation: of operations of this name, as "set-group"; "login" and "right" are refusals.
        outcome: begun, done, failed or refused.
        limit: at most so many; fewer where lines are very long.
        before: with a number below this one, to page backwards.

    Raises:
        InvalidArgumentError: there is no such outcome or operation. NotFoundError: this broker writes no audit log.
    """

    wire = Action("audit-log", "who changed what, and who was refused", many(data(AuditRecord)))
    needs = OnBroker(Right.ADMIN)
    _: KW_ONLY
    since_ms: Int64 | None = None
    until_ms: Int64 | None = None
    who: str | None = None
    identity: str | None = None
    operation: str | None = None
    outcome: str | None = None
    limit: Annotated[int, Ge(1), Le(LIMIT_MAX)] = 100
    before: Natural | None = None

    def __post_init__(self) -> None:
        if self.outcome not in (None, *AUDIT_OUTCOMES):
            raise InvalidArgumentError(f"outcome is {self.outcome!r:.80}; allowed: {', '.join(AUDIT_OUTCOMES)}")
