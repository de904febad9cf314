"""The paths of operations in Tarry's own HTTP API, for servers and clients. Imports nothing slow.

An operation that is not named here is at ``POST /v1/operations/NAME``, with its fields as a JSON object. Those that are
only of use inside Tarry (:data:`INTERNAL`) are not offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tarry.api import operations as ops
from tarry.api.operation import Operation

Kind = type[Operation[Any]]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True)
class Resource:
    """The place of an operation. The names in the path are fields of it."""

    kind: Kind
    method: Method
    path: str
    tag: str


INTERNAL: frozenset[Kind] = frozenset(
    {
        *(ops.BeginJob, ops.ReserveSeqs, ops.CommitJob, ops.AbortJob),
        *(ops.GetQueues, ops.ReadQueue, ops.ReadCancellations, ops.FindOffset, ops.FollowQueue, ops.AdvanceGroup),
        *(ops.GetIntakeState, ops.ReadIntake, ops.AnnounceStore, ops.SetPipelineStatus),
    }
)
"""Operations of Spark's jobs and of readers by offsets: their arguments mean nothing to others."""

ELSEWHERE: frozenset[Kind] = frozenset({ops.FindKey})
"""Operations that ``messages`` has a path for."""

TOPIC = "/v1/topics/{topic}"
MESSAGES, KEY, HANDLE = f"{TOPIC}/messages", f"{TOPIC}/keys/{{key}}", "/v1/messages/{handle}"
"""Paths of single messages, which are no operations: body and query are their own."""
BATCH = "/v1/batch"
GROUP = f"{TOPIC}/groups/{{group}}"
LETTERS = f"{GROUP}/dead-letters"

NAMED = (
    Resource(ops.Cancel, "POST", "/v1/messages/cancel", "messages"),
    Resource(ops.CancelKeys, "POST", f"{TOPIC}/keys/cancel", "messages"),
    Resource(ops.Reschedule, "POST", "/v1/messages/reschedule", "messages"),
    Resource(ops.ListPending, "GET", "/v1/messages", "messages"),
    Resource(ops.ListPending, "GET", f"{TOPIC}/messages", "messages"),
    Resource(ops.GetHistory, "GET", "/v1/history", "messages"),
    Resource(ops.GetPending, "GET", "/v1/topics", "topics"),
    Resource(ops.GetTopic, "GET", TOPIC, "topics"),
    Resource(ops.SetTopic, "PATCH", TOPIC, "topics"),
    Resource(ops.HasTopic, "GET", f"{TOPIC}/exists", "topics"),
    Resource(ops.Peek, "GET", f"{TOPIC}/ready", "topics"),
    Resource(ops.ListGroups, "GET", "/v1/groups", "groups"),
    Resource(ops.ListGroups, "GET", f"{TOPIC}/groups", "groups"),
    Resource(ops.GetGroup, "GET", GROUP, "groups"),
    Resource(ops.ListConsumers, "GET", f"{GROUP}/consumers", "groups"),
    Resource(ops.SetGroup, "PATCH", GROUP, "groups"),
    Resource(ops.DeleteGroup, "DELETE", GROUP, "groups"),
    Resource(ops.PauseGroup, "POST", f"{GROUP}/pause", "groups"),
    Resource(ops.ResumeGroup, "POST", f"{GROUP}/resume", "groups"),
    Resource(ops.Seek, "POST", f"{GROUP}/seek", "groups"),
    Resource(ops.Receive, "POST", f"{GROUP}/receive", "consuming"),
    Resource(ops.Ack, "POST", f"{GROUP}/ack", "consuming"),
    Resource(ops.Nack, "POST", f"{GROUP}/nack", "consuming"),
    Resource(ops.Extend, "POST", f"{GROUP}/extend", "consuming"),
    Resource(ops.ListDeadLetters, "GET", LETTERS, "dead letters"),
    Resource(ops.Respawn, "POST", f"{LETTERS}/respawn", "dead letters"),
    Resource(ops.Purge, "POST", f"{LETTERS}/purge", "dead letters"),
    Resource(ops.ListJobs, "GET", "/v1/jobs", "jobs"),
    Resource(ops.ListJobs, "GET", "/v1/jobs/{job}", "jobs"),
    Resource(ops.CancelJob, "DELETE", "/v1/jobs/{job}", "jobs"),
    Resource(ops.CreateToken, "POST", "/v1/tokens", "access tokens"),
    Resource(ops.ListTokens, "GET", "/v1/tokens", "access tokens"),
    Resource(ops.LimitToken, "PATCH", "/v1/tokens/{token}", "access tokens"),
    Resource(ops.DeleteToken, "DELETE", "/v1/tokens/{token}", "access tokens"),
    Resource(ops.ReadAuditLog, "GET", "/v1/audit-log", "broker"),
    Resource(ops.WhoAmI, "GET", "/v1/whoami", "broker"),
    Resource(ops.CheckAccess, "GET", "/v1/can", "broker"),
    Resource(ops.GetForecast, "GET", "/v1/forecast", "broker"),
    Resource(ops.GetRates, "GET", "/v1/rates", "broker"),
    Resource(ops.GetRates, "GET", f"{TOPIC}/rates", "topics"),
    Resource(ops.GetStatus, "GET", "/v1/status", "broker"),
    Resource(ops.GetOverview, "GET", "/v1/overview", "broker"),
    Resource(ops.Ping, "GET", "/v1/ping", "broker"),
    Resource(ops.GetClock, "GET", "/v1/testing/clock", "testing"),
    Resource(ops.AdvanceClock, "POST", "/v1/testing/advance", "testing"),
)


def resources(kinds: tuple[Kind, ...] = ops.OPERATIONS) -> Iterator[Resource]:
    """All operations that are offered, each at its paths."""
    named = {resource.kind for resource in NAMED}
    yield from NAMED
    for kind in kinds:
        if kind not in named | INTERNAL | ELSEWHERE:
            yield Resource(kind, "POST", f"/v1/operations/{kind.wire.name}", "other")
