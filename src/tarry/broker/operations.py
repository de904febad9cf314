"""A table of operations, and the parts of a broker that carry them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import pyarrow as pa

from tarry.api import operations as ops
from tarry.api.internal_topics import hidden
from tarry.api.jobs import Job
from tarry.api.local import CheckTopic
from tarry.api.operation import Operation
from tarry.base.errors import ForbiddenError
from tarry.base.waiting import wait_for
from tarry.broker.components import BrokerComponents
from tarry.broker.test_time import no_test_clock
from tarry.groups import ConsumerGroups

Handlers = dict[type[Operation[Any]], Callable[[Any], Any]]
FoundHandlers = dict[type[Operation[Any]], Callable[[Any, CheckTopic], Any]]


def handlers(parts: BrokerComponents) -> Handlers:
    """Return the handler of each kind of operation; a test checks that none is missing."""
    changes, groups, dead_letters, queries = parts.changes, parts.groups, parts.dead_letters, parts.queries
    consumers, queues, bulk, pipeline = parts.consumers, parts.queues, parts.bulk, parts.pipeline
    push, test_time = parts.push, parts.test_time
    jobs = JobOperations(parts)
    return {
        ops.Cancel: changes.cancel,
        ops.CancelKeys: changes.cancel_keys,
        ops.Reschedule: changes.reschedule,
        ops.FindKey: changes.find_key,
        ops.Receive: consumers.receive,
        ops.Ack: lambda r: wait_for(partial(groups.find(r.topic, r.group).ack, r.leases, r.offsets)),
        ops.Nack: lambda r: wait_for(
            partial(groups.find(r.topic, r.group).nack, r.leases, r.offsets, r.delay_ms, reason=r.reason)
        ),
        ops.Extend: lambda r: groups.find(r.topic, r.group).extend(r.leases, r.offsets, r.lease_ms),
        ops.SetGroup: lambda r: groups.set(r.topic, r.group, r.start, **r.settings),
        ops.GetGroup: lambda r: groups.info_now(r.topic, r.group),
        ops.ListGroups: lambda r: [groups.info(group) for group in groups.all(r.topic)],
        ops.ListConsumers: lambda r: groups.consumers(r.topic, r.group, r.limit),
        ops.DeleteGroup: lambda r: groups.delete(r.topic, r.group),
        ops.PauseGroup: lambda r: _pause(groups, r, paused=True),
        ops.ResumeGroup: lambda r: _pause(groups, r, paused=False),
        ops.Seek: lambda r: groups.seek(r.topic, r.group, r.to),
        ops.SetTopic: lambda r: groups.set_topic(r.topic, **r.settings),
        ops.GetTopic: lambda r: groups.topic_info(r.topic),
        ops.HasTopic: lambda r: r.topic in parts.intake.accepted or groups.has_topic(r.topic),
        ops.ListDeadLetters: lambda r: hidden(dead_letters.page(r.topic, r.group, r.limit, r.after)),
        ops.Respawn: lambda r: dead_letters.respawn(
            r.topic, r.group, r.offsets, r.limit, r.per_second, tries=r.tries, ttl_ms=r.ttl_ms
        ),
        ops.Purge: lambda r: dead_letters.purge(r.topic, r.group, r.offsets),
        ops.SetPushSubscription: push.set,
        ops.GetPushSubscription: lambda r: push.info(r.name),
        ops.ListPushSubscriptions: lambda r: push.infos(r.topic),
        ops.DeletePushSubscription: lambda r: push.delete(r.name, keep_group=r.keep_group),
        ops.PausePushSubscription: lambda r: push.pause(r.name, r.reason),
        ops.ResumePushSubscription: lambda r: push.resume(r.name),
        ops.ListPushAttempts: lambda r: push.attempts(r.name, r.id, r.failed, r.limit),
        ops.TestPushSubscription: lambda r: push.test(r.name),
        ops.GetPending: queries.pending,
        ops.ListPending: queries.list_pending,
        ops.Peek: queries.peek,
        ops.GetForecast: queries.forecast,
        ops.GetRates: queries.rates,
        ops.GetHistory: queries.history,
        ops.GetMessage: queries.message,
        ops.GetHandles: queries.handles,
        ops.GetOverview: queries.overview,
        ops.GetStatus: lambda _: parts.status.read(),
        ops.Ping: lambda _: parts.status.ping(),
        ops.FindMessage: parts.placed.find,
        ops.DiscardMessage: parts.placed.discard,
        ops.ListJobs: lambda r: bulk.list(r.job, r.limit),
        ops.CancelJob: lambda r: bulk.cancel(r.job),
        ops.BeginJob: jobs.begin,
        ops.ReserveSeqs: lambda r: bulk.reserve(r.number, r.rows),
        ops.CommitJob: jobs.commit,
        ops.AbortJob: lambda r: bulk.abort(r.number),
        ops.GetQueues: queues.state,
        ops.ReadQueue: queues.read,
        ops.ReadCancellations: queues.read_cancellations,
        ops.FindOffset: queues.offset_at,
        ops.FollowQueue: lambda r: groups.follow(r.topic, r.group, r.start),
        ops.AdvanceGroup: lambda r: groups.advance(r.topic, r.group, r.offset),
        ops.CreateToken: parts.access_tokens.create,
        ops.ListTokens: parts.access_tokens.list,
        ops.LimitToken: parts.access_tokens.limit,
        ops.DeleteToken: parts.access_tokens.delete,
        ops.SetIdentity: parts.identities.set,
        ops.ListIdentities: parts.identities.all,
        ops.DeleteIdentity: parts.identities.delete,
        ops.AddCredential: parts.identities.add_credential,
        ops.RemoveCredential: parts.identities.remove_credential,
        ops.GetQuotaUse: parts.identities.quota_use,
        ops.WhoAmI: parts.identities.who_am_i,
        ops.CheckAccess: parts.identities.check_access,
        ops.ReadAuditLog: parts.audit.read,
        ops.BeginBackup: lambda _: parts.backups.begin(),
        ops.ExtendBackup: lambda r: parts.backups.extend(r.backup),
        ops.EndBackup: lambda r: parts.backups.end(r.backup),
        ops.RecordBackup: lambda r: parts.last_backup.record(r.at_ms, r.place, r.bytes),
        ops.GetIntakeState: pipeline.intake_state,
        ops.ReadIntake: pipeline.read_intake,
        ops.AnnounceStore: pipeline.announce_store,
        ops.SetPipelineStatus: pipeline.set_status,
        ops.GetClock: no_test_clock if test_time is None else lambda _: test_time.state(),
        ops.AdvanceClock: no_test_clock if test_time is None else test_time.advance,
    }


def found_handlers(parts: BrokerComponents) -> FoundHandlers:
    """Return the handlers of operations that need a right on what they find; none is missing.

    It is given a check of the topic found, which it calls before it changes or returns anything.
    """
    changes, queries, push = parts.changes, parts.queries, parts.push
    return {
        ops.Cancel: changes.cancel,
        ops.Reschedule: changes.reschedule,
        ops.GetMessage: lambda r, check: _checked_message(queries.message(r), check),
        ops.GetHistory: queries.history,
        ops.SetPushSubscription: push.set,
        ops.GetPushSubscription: lambda r, check: push.info(r.name, check),
        ops.DeletePushSubscription: lambda r, check: push.delete(r.name, keep_group=r.keep_group, check=check),
        ops.PausePushSubscription: lambda r, check: push.pause(r.name, r.reason, check),
        ops.ResumePushSubscription: lambda r, check: push.resume(r.name, check),
        ops.ListPushAttempts: lambda r, check: push.attempts(r.name, r.id, r.failed, r.limit, check),
        ops.TestPushSubscription: lambda r, check: push.test(r.name, check),
    }


def _checked_message(found: pa.RecordBatch, check: CheckTopic) -> pa.RecordBatch:
    try:
        for topic in found.column("topic").to_pylist():
            check(topic)
    except ForbiddenError:
        return found.slice(0, 0)  # as if it were not kept: its caller is not to learn that it is there
    return found


def _pause(groups: ConsumerGroups, request: ops.PauseGroup | ops.ResumeGroup, *, paused: bool) -> None:
    groups.find(request.topic, request.group)  # to pause makes no group
    groups.set(request.topic, request.group, None, paused=paused)


class JobOperations:
    """The operations of whoever loads a bulk job: what they are told beside the job itself."""

    def __init__(self, parts: BrokerComponents) -> None:
        self._bulk = parts.bulk
        self._pipeline = parts.pipeline

    def begin(self, request: ops.BeginJob) -> dict[str, Any]:
        """Begin an attempt; return it with the place and the limits of its messages."""
        job = self._bulk.begin(request.job, request.attempt)
        return {**_plain(job), **self._pipeline.store_place(), "limits": asdict(self._bulk.limits)}

    def commit(self, request: ops.CommitJob) -> dict[str, Any]:
        """Commit an attempt; return it with the version of the store."""
        job, version = self._bulk.commit(request.number, request.files, request.topics, request.keys)
        return {**_plain(job), "version": version}


def _plain(job: Job) -> dict[str, Any]:
    return asdict(job)
