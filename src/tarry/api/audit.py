"""The audit log as it is told: its lines, and who or what caused them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from tarry.base.errors import LoginReason, LoginRefusal

AuditOutcome = Literal["begun", "done", "failed", "refused"]
AUDIT_OUTCOMES: tuple[AuditOutcome, ...] = ("begun", "done", "failed", "refused")

REFUSAL_REASONS = (*get_args(LoginReason), "right")


@dataclass(frozen=True, slots=True)
class AskedBy:
    """The caller of an operation, as far as it is known."""

    who: str
    """Name of an identity; "local" where nobody is asked.

    "broker:front": a front that acts by itself.
    """
    credential: str | None = None
    """Id of the credential that was shown."""
    front: str | None = None
    peer: str | None = None
    """The client's address, without its port."""
    request: str | None = None
    """Id that the client gave its request."""

    def fields(self) -> dict[str, str]:
        """Return what is known, as fields of a line."""
        given = {"who": self.who, "credential": self.credential, "front": self.front}
        given |= {"peer": self.peer, "request": self.request}
        return {name: value for name, value in given.items() if value is not None}


NOBODY_ASKED = AskedBy("local")
"""Whoever reaches a broker without identities."""
BY_A_FRONT = AskedBy("broker:front")
"""A front that does something by itself, of a broker with identities.

No identity has a colon in its name.
"""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A line of the audit log."""

    n: int
    """Number of the line, from 1 on without gaps."""
    previous: str
    """BLAKE2b-256 of the line before it."""
    at_ms: int
    operation: str
    """Name of the operation.

    "login": a credential was not taken. "right": a right was missing outside of an operation. "reload": files were read
    again.
    """
    outcome: str
    """One of :data:`AUDIT_OUTCOMES`."""
    who: str | None = None
    credential: str | None = None
    front: str | None = None
    peer: str | None = None
    request: str | None = None
    code: str | None = None
    """Code of the error, or the reason of a refusal."""
    details: dict[str, Any] = field(default_factory=dict)
    """The resource, and what was asked of it; never a secret."""
    more: int = 0
    """So many more like it were counted and not written."""
    of: int | None = None
    """Number of the line that told of the beginning."""


RELOAD = "reload"
"""Operation of a line about files that were read again."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Files that were read again since they have changed: certificates, authorities, keys."""

    file: str
    content: Mapping[str, str | int]
    """Details that tell the new content from the former; nothing secret. Empty after an error."""
    error: str | None = None
    """The reason for which the former content stays in use."""


class NotesRefusals(Protocol):
    """Is told who was refused, and which files were read again. Any thread."""

    def login(self, front: str, peer: str, refusal: LoginRefusal) -> None:
        """Note a caller whose credential was not taken."""
        ...

    def right(self, asked: AskedBy, right: str, topic: str | None, group: str | None, operation: str) -> None:
        """Note a caller who has not a right; ``operation``: "right" outside of one."""
        ...

    def anonymous(self, asked: AskedBy) -> None:
        """Note a caller that has shown no credential, and is let in as the identity for such callers."""
        ...

    def reloaded(self, listener: str, reloaded: Reloaded) -> None:
        """Note what a listener has read again; what another one has told already is noted once."""
        ...
