"""The operations that the audit log has, by the right that they need, and what it tells of each.

A new operation that needs ``manage`` or ``admin`` is in it by itself. Fields are told by name: one that is not listed
here stays out, so that no secret gets in by being new. A test asks that each field is in one list or the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from enum import Enum, auto
from typing import Any
from urllib.parse import urlsplit

from tarry.api import operations as ops
from tarry.api.audit import RELOAD
from tarry.api.needs import Needs, Right
from tarry.api.operation import Operation


class AuditKind(Enum):
    """A way in which an operation is written."""

    READ = auto()
    """It changes nothing: one line a minute of each caller."""
    CHANGE = auto()
    """One line when it has ended, durable before it is answered."""
    IDENTITY = auto()
    """A line before it begins, too: it changes who may do what."""


_READS = frozenset(
    {ops.ListTokens, ops.ListIdentities, ops.GetQuotaUse, ops.ListPushAttempts, ops.ReadAuditLog, ops.ExtendBackup}
)
_ALSO = frozenset({ops.CancelJob, ops.AdvanceClock, ops.BeginBackup, ops.EndBackup, ops.RecordBackup})
"""Operations of other rights that take something away from many, or that change nobody's rights."""

TOLD = frozenset(
    (
        *("topic", "group", "name", "identity", "id", "token", "namespace", "job", "to", "settings", "start", "reason"),
        *(
            "grants",
            "quotas",
            "description",
            "kind",
            "access_key",
            "san",
            "claim",
            "issuer",
            "expires_ms",
            "reads_max",
            "writes_max",
            "interval_ms",
        ),
        *("limit", "per_second", "tries", "ttl_ms", "keep_group", "concurrency", "timeout_ms", "breaker_failures"),
        "cloudevents",
        *(
            "since_ms",
            "until_ms",
            "who",
            "operation",
            "outcome",
            "by",
            "wait_ms",
            "before",
            "failed",
            "rotate",
            "retry",
            "filter",
            "backup",
            "at_ms",
            "place",
            "bytes",
        ),
    )
)
"""Fields that a line has."""
UNTOLD = frozenset(("secret", "secrets", "headers", "offsets", "url"))
"""Fields that it has not: secrets, what may hold some, and long lists. Of a URL it has the origin."""


def _audited(kind: type[Operation[Any]]) -> AuditKind | None:
    right = right_of(kind.needs)
    if kind in _READS:
        return AuditKind.READ
    if kind in _ALSO or right is Right.MANAGE:
        return AuditKind.CHANGE
    return AuditKind.IDENTITY if right is Right.ADMIN else None


def right_of(needs: Needs) -> Right | None:
    """Return the right that an operation needs; None: it needs none, or its answer is filtered."""
    return getattr(needs, "right", None)


AUDITED: dict[type[Operation[Any]], AuditKind] = {
    kind: audited for kind in ops.OPERATIONS if (audited := _audited(kind)) is not None
}


OF_THE_LOG = (
    *("login", "right", RELOAD, "refusals", "start", "stop"),
    *("audit-log-lost", "audit-log-damaged"),
)
"""Names that lines have beside those of operations."""
OPERATION_NAMES = (*OF_THE_LOG, *sorted(kind.wire.name for kind in ops.OPERATIONS))
"""Names that lines may have: any operation may be refused for a right."""
_OF_IDENTITIES = frozenset((ops.SetIdentity.wire.name, ops.DeleteIdentity.wire.name))


def is_about(identity: str, line: Mapping[str, Any]) -> bool:
    """Return whether a line is about an identity: its making, rights, quotas, credentials, its end."""
    details = line.get("details", {})
    named = details.get("name") if line["operation"] in _OF_IDENTITIES else None
    return identity in (named, details.get("identity"))


def told(operation: Operation[Any]) -> dict[str, Any]:
    """Return the fields of an operation that its line has: those that are given."""
    shown = {each.name: getattr(operation, each.name) for each in _fields(operation) if each.name in TOLD}
    url = getattr(operation, "url", None)
    if url is not None:
        shown["origin"] = _origin(url)
    return {name: value for name, value in shown.items() if value not in (None, {})}


def _fields(of: Any) -> tuple[Field[Any], ...]:
    return fields(of)


def _origin(url: object) -> str:
    """Return scheme, host and port of a URL: its path and its user may be secrets."""
    try:
        parts = urlsplit(str(url))
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "none"  # it is refused
    return f"{parts.scheme}://{parts.hostname}{port}"
