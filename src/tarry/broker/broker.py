"""The broker: one open data directory.

Its parts are made in ``construction``; ``operations`` maps each operation to the part that carries it out.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from tarry.api import operations as ops
from tarry.api.access import AccessToken
from tarry.api.accounts import QuotaAccount, QuotaAccounts
from tarry.api.audit import BY_A_FRONT, NOBODY_ASKED, AskedBy
from tarry.api.board import Board, Member, OnMessage
from tarry.api.calls import Calls, method
from tarry.api.clear_ports import ClearPorts
from tarry.api.credential_uses import CredentialUses
from tarry.api.identities import Identity
from tarry.api.issuers import TokenIssuer
from tarry.api.jobs import StagedFile
from tarry.api.local import CheckTopic, OnAccepted
from tarry.api.operation import Operation
from tarry.api.operations.delivery import Subscribe
from tarry.api.outcome import Outcome
from tarry.api.views import Page
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.placement import ANY_CORE, Placement
from tarry.broker import front_state
from tarry.broker.components import BrokerComponents
from tarry.broker.confirmed_queries import confirmed
from tarry.broker.construction import open_components
from tarry.broker.engines import engine_of
from tarry.broker.front_state import FrontStateFile
from tarry.broker.health import Health
from tarry.broker.operations import found_handlers, handlers
from tarry.broker.push import Push
from tarry.broker.test_clock import clock_of
from tarry.groups import Group, GroupSubscription
from tarry.identity.issuers import PublishedIssuer
from tarry.identity.refusals import Refusals
from tarry.log.engine import LogEngine
from tarry.log.files import Files, OsFiles
from tarry.message.accepted import Accepted
from tarry.message.receipt import Receipt
from tarry.message.row_columns import to_batch
from tarry.message.rows import ID, Row

log = logging.getLogger(__name__)

R = TypeVar("R")

STOP_S = 4.0
"""Longest time that a stop waits for a store of logs that gives no answer."""


class Broker(Calls):
    """A broker. Open it with :meth:`open`; close it with :meth:`close` or a ``with`` block. Thread-safe.

    It is a :class:`tarry.api.local.AnyBroker`, and has every operation as a method.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        files: Files,
        *,
        engine: LogEngine | None = None,
        threads: bool,
        placement: Placement = ANY_CORE,
        audited: bool = False,
    ) -> None:
        self.config = config
        self.clock = clock
        engine = engine or engine_of(config, files, clock)
        self._files = engine.files
        self._health = Health()
        self.components: BrokerComponents = open_components(
            config,
            clock,
            engine.files,
            engine,
            self._health,
            threaded=threads,
            placement=placement,
            audited=audited,
        )
        """The parts of the broker, for tests and extensions."""
        parts = self.components
        self._handlers = confirmed(handlers(parts), engine.shared)
        self._found_handlers = confirmed(found_handlers(parts), engine.shared)
        self._list_whole = confirmed({ops.ListPending: parts.queries.list_whole}, engine.shared)[ops.ListPending]
        self._audited = parts.audit.kinds
        self._health.listen(parts.groups.stop)
        if parts.traces is not None:
            parts.traces.start()
        if threads:
            parts.loops.start()
        parts.key_backfill.start()

    @classmethod
    def open(
        cls,
        config: Config,
        *,
        clock: Clock | None = None,
        threads: bool = True,
        files: Files | None = None,
        placement: Placement = ANY_CORE,
        audited: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Broker:
        """Open a data directory, recovering what a crash left.

        With ``threads=False`` nothing happens by itself: :meth:`step` does what is due (for tests, with a test clock).
        ``placement`` says on which cores the broker's threads run. ``audited``: who changes what is written down, if
        the settings do not turn it off. ``is_stopped`` is asked while it stands by (setting ``takeover``).

        Raises:
            InvalidArgumentError: it is of a test clock and this one is real, or the other way round.
            LockedError: another broker has it open.
            ClosedError: it stood by, and was stopped.
            CorruptError: it is damaged.
            DiskFullError: something has to be written first, and there is no room for it.
            FatalError: its disk failed, or is read-only.
        """
        clock, files = clock or clock_of(config), files or OsFiles()
        config = config.anchored()
        engine = engine_of(config, files, clock, is_stopped)
        return cls(config, clock, files, engine=engine, threads=threads, placement=placement, audited=audited)

    @property
    def epoch(self) -> int | None:
        """The epoch of this owner of the logs: see :attr:`tarry.api.local.AnyBroker.epoch`."""
        return self.components.store.epoch

    @property
    def lease_left_ms(self) -> int | None:
        """See :attr:`tarry.fronts.gateway.served.broker.ServedBroker.lease_left_ms`."""
        shared = self.components.engine.shared
        return None if shared is None else shared.lease_left_ms

    @property
    def access_tokens(self) -> tuple[AccessToken, ...]:
        """All access tokens: see :attr:`tarry.api.local.AnyBroker.access_tokens`."""
        return self.components.access_tokens.snapshot

    @property
    def identities(self) -> tuple[Identity, ...]:
        """All identities: see :attr:`tarry.api.local.AnyBroker.identities`."""
        return self.components.identities.snapshot

    @property
    def accounts(self) -> QuotaAccounts:
        """The use of each identity: see :attr:`tarry.api.local.AnyBroker.accounts`."""
        return self.components.identities.accounts

    @property
    def credential_uses(self) -> CredentialUses:
        """The uses of credentials: see :attr:`tarry.api.local.AnyBroker.credential_uses`."""
        return self.components.identities.days.uses

    @property
    def clear_ports(self) -> ClearPorts:
        """The ports without TLS: see :attr:`tarry.api.local.AnyBroker.clear_ports`."""
        return self.components.status.clear_ports

    @property
    def token_issuers(self) -> Sequence[TokenIssuer]:
        """The providers whose tokens are taken: see :attr:`tarry.api.local.AnyBroker.token_issuers`."""
        return self.components.identities.issuers.all

    @property
    def published_issuers(self) -> Sequence[PublishedIssuer]:
        """The providers, as workers are told of them: see :attr:`Issuers.published`."""
        return self.components.identities.issuers.published

    def listen_to_issuers(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change of providers' keys: see :meth:`Issuers.listen`."""
        return self.components.identities.issuers.listen(on_change)

    def ask_issuer(self, url: str) -> None:
        """Have newer keys of a provider looked for: see :meth:`Issuers.ask_again`."""
        self.components.identities.issuers.ask_again(url)

    def access_secret(self, credential: str) -> bytes | None:
        """Return the secret of an access key: see :attr:`tarry.api.local.AnyBroker.access_secret`."""
        return self.components.identities.access_secret(credential)

    @property
    def refusals(self) -> Refusals:
        """Is told who was refused: see :attr:`tarry.api.local.AnyBroker.refusals`."""
        return self.components.audit.refusals

    def listen_to_identities(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change of the identities: see :meth:`Identities.listen`."""
        return self.components.identities.listen(on_change)

    def listen_to_tokens(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change of the access tokens: see :meth:`AccessTokens.listen`."""
        return self.components.access_tokens.listen(on_change)

    def call(self, operation: Operation[R]) -> R:
        """Carry an operation out; see :class:`tarry.api.calls.Calls`."""
        if type(operation) in self._audited:
            return self.call_by(operation, BY_A_FRONT if self.identities else NOBODY_ASKED)
        return self._carry_out(operation)

    def call_by(self, operation: Operation[R], asked: AskedBy) -> R:
        """Carry an operation out, and tell who asked: see :meth:`tarry.api.local.AnyBroker.call_by`."""
        if type(operation) not in self._audited:
            return self._carry_out(operation)
        self._health.check_serving()
        found = self.components.identities.details_of(operation)
        return self.components.audit.carry_out(operation, asked, partial(self._carry_out, operation), found)

    def _carry_out(self, operation: Operation[R]) -> R:
        if not isinstance(operation, _ALWAYS):
            self._health.check_serving()
        result: R = self._handlers[type(operation)](operation)
        return result

    def call_found(self, operation: Operation[R], check: CheckTopic) -> R:
        """Carry out an operation on what is found: see :meth:`tarry.api.local.AnyBroker.call_found`."""
        self._health.check_serving()
        result: R = self._found_handlers[type(operation)](operation, check)
        return result

    def call_as(self, operation: Operation[R], asked: AskedBy, check: CheckTopic) -> R:
        """Carry out such an operation for an identity: see :meth:`tarry.api.local.AnyBroker.call_as`."""
        if type(operation) not in self._audited:
            return self.call_found(operation, check)
        return self.components.audit.carry_out(operation, asked, partial(self.call_found, operation, check))

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def _schedule(self, row: Row) -> Receipt:
        [receipt] = self.schedule_batch(to_batch([row])).receipts([row[ID]])
        return receipt

    def schedule_batch(self, data: pa.RecordBatch | pa.Table) -> Accepted:
        """Schedule a batch, all of it or nothing, and wait until it is durable.

        Columns: :func:`tarry.message.admission.admit`.
        """
        return self.components.scheduling.schedule_batch(data)

    def submit(
        self,
        data: pa.RecordBatch | pa.Table,
        on_result: OnAccepted,
        *,
        lead: bool = False,
        internal: bool = False,
        own_handles: bool = False,
    ) -> None:
        """Schedule a batch: see :meth:`tarry.api.local.AnyBroker.submit`."""
        self.components.scheduling.submit(data, on_result, lead=lead, internal=internal, own_handles=own_handles)

    def submit_checked(self, batch: pa.RecordBatch, on_result: OnAccepted, *, own_handles: bool = False) -> None:
        """Schedule a checked batch: see :meth:`tarry.api.local.AnyBroker.submit_checked`."""
        self.components.scheduling.submit_checked(batch, on_result, own_handles=own_handles)

    def submit_dead(
        self, batch: pa.RecordBatch, on_result: OnAccepted, *, topic: str, group: str, attempts: Sequence[int]
    ) -> None:
        """Schedule dead letters: see :meth:`tarry.api.local.AnyBroker.submit_dead`."""
        copies = self.components.groups.dead_letters_of(batch, topic, group, attempts, self.clock.now_ms())
        self.components.scheduling.submit_checked(copies, on_result)

    def find_keyed(self, topic: str, key: str) -> pa.RecordBatch | Outcome:
        """Return the message under a key: see :meth:`tarry.api.local.AnyBroker.find_keyed`."""
        return self.components.changes.find_keyed(topic, key)

    def replace_keyed(self, topic: str, key: str, seq: int, successor: pa.RecordBatch) -> Outcome:
        """Replace the message under a key: see :meth:`tarry.api.local.AnyBroker.replace_keyed`."""
        return self.components.changes.replace_keyed(topic, key, seq, successor)

    def stage_job(self, number: int, batches: Iterable[pa.RecordBatch]) -> tuple[list[StagedFile], Counter[str]]:
        """Stage files of a bulk job: see :meth:`tarry.api.local.AnyBroker.stage_job`."""
        return self.components.bulk.stage(number, batches)

    def join(self, front: str, on_message: OnMessage) -> Member:
        """Join the processes of a front: see :meth:`tarry.api.local.AnyBroker.join`."""
        return self.components.board.join(front, "broker", on_message)

    @property
    def board(self) -> Board:
        """The board on which the processes of fronts share what they know."""
        return self.components.board

    @property
    def push(self) -> Push:
        """Push subscriptions: see :class:`tarry.api.pushing.PushSubscriptions`."""
        return self.components.push

    def front_state(self, name: str) -> FrontStateFile:
        """Return the file of a front's state: see :meth:`tarry.api.local.AnyBroker.front_state`."""
        path = self.config.data / front_state.DIRECTORY / front_state.PATTERN.replace("*", name)
        return FrontStateFile(self._files, path, self.components.damage.report)

    def list_whole(self, request: ops.ListPending) -> Page:
        """Return a page of pending messages: see :meth:`tarry.api.local.LocalBroker.list_whole`."""
        page: Page = self._list_whole(request)
        return page

    # -- consuming -----------------------------------------------------------------------------------------------------

    receive = method(ops.Receive)
    ack = method(ops.Ack)
    nack = method(ops.Nack)
    extend = method(ops.Extend)
    intake_state = method(ops.GetIntakeState)
    read_intake = method(ops.ReadIntake)
    store_committed = method(ops.AnnounceStore)
    set_pipeline_status = method(ops.SetPipelineStatus)

    def open_subscription(self, request: Subscribe, account: QuotaAccount | None = None) -> GroupSubscription:
        """Add a consumer to a group: see :meth:`tarry.api.local.AnyBroker.open_subscription`."""
        self._health.check_serving()
        return self.components.consumers.subscribe(request, account)

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        prefetch: int = 1000,
        lease_ms: int | None = None,
        start: str | None = None,
        broadcast: str | None = None,
    ) -> GroupSubscription:
        """Add a consumer to ``group``; see :class:`tarry.api.operations.delivery.Subscribe`."""
        return self.open_subscription(
            Subscribe(topic, group, prefetch=prefetch, lease_ms=lease_ms, start=start, broadcast=broadcast)  # type: ignore[arg-type]
        )

    def group(self, topic: str, name: str, *, start: str | None = None, broadcast: str | None = None) -> Group:
        """Return a group, created if new: see :meth:`tarry.api.local.AnyBroker.group`."""
        self._health.check_serving()
        return self.components.groups.get_or_create(topic, name, start=start, broadcast=broadcast)

    def find_group(self, topic: str, name: str) -> Group:
        """Return an existing group: see :meth:`tarry.api.local.AnyBroker.find_group`."""
        self._health.check_serving()
        return self.components.groups.find(topic, name)

    # -- running -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do everything that is due at the clock's time. Only without threads."""
        self._health.check_serving()
        self.components.loops.step()

    def next_event_ms(self) -> int | None:
        """Return the earliest time at which :meth:`step` may deliver something; None if nothing is pending.

        The time is a lower bound.
        """
        return self.components.loops.next_event_ms()

    def checkpoint(self) -> bool:
        """Make progress durable now; return False if no consistent cut is possible at the moment.

        The broker makes checkpoints by itself, too.
        """
        return self.components.progress.checkpoint()

    def note_serving(self, addresses: Mapping[str, str]) -> None:
        """Note the addresses by front at which it serves, for ``tarry status --data``."""
        if (shared := self.components.engine.shared) is not None:
            shared.serve(addresses)

    def wait_fatal(self, timeout_s: float | None = None) -> bool:
        """Wait until the broker has failed; return whether it has."""
        return self._health.wait_fatal(timeout_s)

    def close(self) -> None:
        """Answer what was submitted, make progress durable, and release the directory."""
        health, parts = self._health, self.components
        if health.closed:
            return
        health.closed = True
        until_s = None
        if parts.engine.shared is not None:
            until_s = time.monotonic() + STOP_S
            parts.engine.shared.stop_by(STOP_S)
        parts.key_backfill.stop()
        parts.commits.close()
        parts.writer.close()
        parts.loops.stop()
        health.end()
        # One may be asking a store that gives no answer for minutes. The directory is a cache then, and nothing is
        # answered any more, so it is left; and nobody is told that hand-outs have ended, for it may be in the midst.
        have_ended = parts.loops.join(until_s)
        if not have_ended:
            log.warning("the store gives no answer: stopping without it")
        try:
            parts.journal.close()
            if health.fatal is None and have_ended:
                parts.loops.try_disk(parts.progress.end)
        finally:
            parts.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_ALWAYS = (
    *(ops.GetStatus, ops.GetOverview, ops.Ping, ops.SetPipelineStatus, ops.GetPending),
    ops.ListPushSubscriptions,
)
"""Operations that a failed or closed broker answers, too."""
