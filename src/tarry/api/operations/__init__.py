"""The operations, each as its request: one file a subject, all of them in :data:`OPERATIONS`.

``messages`` cancels and moves · ``placed`` is about one message, wherever it is · ``delivery`` receives and settles ·
``groups`` · ``dead_letters`` · ``queries`` change nothing · ``push`` is about push subscriptions · ``jobs`` are bulk
jobs · ``queues`` are read by offsets · ``access`` has the tokens of the HTTP front ·
``identities`` · ``audit`` · ``rates`` are of the past · ``backups`` · ``pipeline`` is for Spark ·
``testing`` moves a test clock.
To schedule is a stream of batches: :mod:`tarry.message.rows`.
"""

# All of them are names of this package.
# mypy: implicit-reexport

from __future__ import annotations

from typing import Any

from tarry.api.operation import Operation
from tarry.api.operations.access import CreateToken, DeleteToken, LimitToken, ListTokens
from tarry.api.operations.audit import ReadAuditLog
from tarry.api.operations.backups import BeginBackup, EndBackup, ExtendBackup, RecordBackup
from tarry.api.operations.dead_letters import ListDeadLetters, Purge, Respawn
from tarry.api.operations.delivery import Ack, Extend, Nack, Receive
from tarry.api.operations.groups import (
    DeleteGroup,
    GetGroup,
    GetTopic,
    HasTopic,
    ListConsumers,
    ListGroups,
    PauseGroup,
    ResumeGroup,
    Seek,
    SetGroup,
    SetTopic,
)
from tarry.api.operations.identities import (
    AddCredential,
    CheckAccess,
    DeleteIdentity,
    GetQuotaUse,
    ListIdentities,
    RemoveCredential,
    SetIdentity,
    WhoAmI,
)
from tarry.api.operations.jobs import AbortJob, BeginJob, CancelJob, CommitJob, ListJobs, ReserveSeqs
from tarry.api.operations.messages import Cancel, CancelKeys, FindKey, Reschedule
from tarry.api.operations.pipeline import AnnounceStore, GetIntakeState, ReadIntake, SetPipelineStatus
from tarry.api.operations.placed import DiscardMessage, FindMessage
from tarry.api.operations.push import (
    DeletePushSubscription,
    GetPushSubscription,
    ListPushAttempts,
    ListPushSubscriptions,
    PausePushSubscription,
    ResumePushSubscription,
    SetPushSubscription,
    TestPushSubscription,
)
from tarry.api.operations.queries import (
    GetForecast,
    GetHandles,
    GetHistory,
    GetMessage,
    GetOverview,
    GetPending,
    GetStatus,
    ListPending,
    Peek,
    Ping,
)
from tarry.api.operations.queues import AdvanceGroup, FindOffset, FollowQueue, GetQueues, ReadCancellations, ReadQueue
from tarry.api.operations.rates import GetRates
from tarry.api.operations.testing import AdvanceClock, GetClock

OPERATIONS: tuple[type[Operation[Any]], ...] = (
    *(Cancel, CancelKeys, Reschedule, FindKey),
    *(Receive, Ack, Nack, Extend),
    *(SetGroup, GetGroup, ListGroups, ListConsumers, DeleteGroup, PauseGroup, ResumeGroup, Seek),
    *(SetTopic, GetTopic, HasTopic),
    *(ListDeadLetters, Respawn, Purge),
    *(SetPushSubscription, GetPushSubscription, ListPushSubscriptions, DeletePushSubscription),
    *(PausePushSubscription, ResumePushSubscription, ListPushAttempts, TestPushSubscription),
    *(GetPending, ListPending, Peek, GetForecast, GetHistory, GetMessage, GetHandles, GetStatus, GetOverview, Ping),
    GetRates,
    *(FindMessage, DiscardMessage),
    *(ListJobs, CancelJob, BeginJob, ReserveSeqs, CommitJob, AbortJob),
    *(GetQueues, ReadQueue, ReadCancellations, FindOffset, FollowQueue, AdvanceGroup),
    *(CreateToken, ListTokens, LimitToken, DeleteToken),
    *(SetIdentity, ListIdentities, DeleteIdentity, AddCredential, RemoveCredential, WhoAmI, CheckAccess, GetQuotaUse),
    ReadAuditLog,
    *(BeginBackup, ExtendBackup, EndBackup, RecordBackup),
    *(GetIntakeState, ReadIntake, AnnounceStore, SetPipelineStatus),
    *(GetClock, AdvanceClock),
)
"""All operations that are on the wire."""
