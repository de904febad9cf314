"""A broker as one principal sees it: it asks for rights before anything is done.

It stands wherever a front uses a broker. What needs no right passes through. A principal that may do everything gets
the broker itself (:func:`seen_by`), so nothing is asked twice on one machine without identities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import pyarrow as pa

from tarry.api import operations as ops
from tarry.api.access import AccessToken
from tarry.api.accounts import QuotaAccount, QuotaAccounts
from tarry.api.audit import AskedBy, NotesRefusals
from tarry.api.audited import AUDITED
from tarry.api.board import Member, OnMessage
from tarry.api.clear_ports import ClearPorts
from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.api.credential_uses import CredentialUses
from tarry.api.identities import AccessDecision, Identity
from tarry.api.issuers import TokenIssuer
from tarry.api.jobs import StagedFile
from tarry.api.local import AnyBroker, CheckTopic, LocalBroker, OnAccepted
from tarry.api.needs import OnFound, OnPushSubscription, Right
from tarry.api.operation import Operation
from tarry.api.operations.delivery import Subscribe
from tarry.api.outcome import Outcome
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import TarryError
from tarry.identity.checks import body_bytes_of, check_request, check_rows, topics_of, visible
from tarry.identity.principal import Principal
from tarry.message.accepted import Accepted

R = TypeVar("R")
SHARES = 2
"""One identity may have this part of the bytes on their way to the disk: others find room."""
_MAKES_GROUP = (ops.SetGroup, ops.Receive)


def seen_by(broker: AnyBroker, principal: Principal, asked: AskedBy | None = None) -> AnyBroker:
    """Return a broker as a principal sees it; ``asked`` says more of the caller, for the audit log."""
    return broker if principal.is_local else SeenBroker(broker, principal, asked)


class SeenBroker:
    """See the module. A :class:`tarry.api.local.AnyBroker`, with what fronts in its process need."""

    def __init__(self, broker: AnyBroker, principal: Principal, asked: AskedBy | None = None) -> None:
        self._broker = broker
        self.principal = principal
        self._asked = asked or principal.asks()

    @property
    def config(self) -> Config:
        """The broker's settings."""
        return self._broker.config

    @property
    def clock(self) -> Clock:
        """The broker's clock."""
        return self._broker.clock

    @property
    def epoch(self) -> int | None:
        """The owner's epoch: see :attr:`tarry.api.local.AnyBroker.epoch`."""
        return self._broker.epoch

    @property
    def identities(self) -> tuple[Identity, ...]:
        """All identities: see :attr:`tarry.api.local.AnyBroker.identities`."""
        return self._broker.identities

    def listen_to_identities(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change: see :meth:`tarry.api.local.AnyBroker.listen_to_identities`."""
        return self._broker.listen_to_identities(on_change)

    @property
    def credential_uses(self) -> CredentialUses:
        """The uses of credentials: see :attr:`tarry.api.local.AnyBroker.credential_uses`."""
        return self._broker.credential_uses

    @property
    def clear_ports(self) -> ClearPorts:
        """The ports without TLS: see :attr:`tarry.api.local.AnyBroker.clear_ports`."""
        return self._broker.clear_ports

    @property
    def token_issuers(self) -> Sequence[TokenIssuer]:
        """The providers of tokens: see :attr:`tarry.api.local.AnyBroker.token_issuers`."""
        return self._broker.token_issuers

    def access_secret(self, credential: str) -> bytes | None:
        """Return None: a caller gets no secrets, its own neither."""
        return None

    @property
    def refusals(self) -> NotesRefusals:
        """Is told who was refused: see :attr:`tarry.api.local.AnyBroker.refusals`."""
        return self._broker.refusals

    @property
    def accounts(self) -> QuotaAccounts:
        """The use of identities: see :attr:`tarry.api.local.AnyBroker.accounts`."""
        return self._broker.accounts

    @property
    def access_tokens(self) -> tuple[AccessToken, ...]:
        """All access tokens: see :attr:`tarry.api.local.AnyBroker.access_tokens`."""
        return self._broker.access_tokens

    def join(self, front: str, on_message: OnMessage) -> Member:
        """Join the processes of a front: see :meth:`tarry.api.local.AnyBroker.join`."""
        return self._broker.join(front, on_message)

    def call(self, operation: Operation[R]) -> R:
        """Carry an operation out, if the principal may have that done.

        Raises:
            ForbiddenError: it may not.
        """
        return self.call_by(operation, self._asked)

    def call_by(self, operation: Operation[R], asked: AskedBy) -> R:
        """Carry an operation out, if the principal may; ``asked`` says more of it, for the audit log.

        Raises:
            ForbiddenError: it may not.
        """
        principal = self.principal
        check_request(principal, operation, asked)
        if isinstance(operation, _MAKES_GROUP):
            self._count_group(operation.topic, operation.group)
        result: Any
        if isinstance(operation, ops.WhoAmI):
            result = principal.who()
        elif isinstance(operation, ops.CheckAccess):
            result = self._check_access(operation)
        elif isinstance(operation.needs, OnFound | OnPushSubscription) and not principal.rights.is_unlimited:
            result = self._call_on_found(operation, operation.needs, asked)
        else:
            result = visible(principal, operation, self._call(operation, asked))
        return cast(R, result)

    def _call(self, operation: Operation[R], asked: AskedBy) -> R:
        if type(operation) in AUDITED:
            return self._broker.call_by(operation, asked)
        return self._broker.call(operation)

    def _call_on_found(self, operation: Operation[R], needs: OnFound | OnPushSubscription, asked: AskedBy) -> R:
        """Have the broker ask for the right when it has found what the operation is on."""
        check = partial(self._check_as, operation, asked, needs.right)
        if isinstance(needs, OnPushSubscription) and not self.principal.rights.allow_some(needs.right):
            check(getattr(operation, "topic", None))  # refused, whatever there is: nothing is looked for
        return self._broker.call_as(operation, asked, check)

    def _check_as(self, operation: Operation[Any], asked: AskedBy, right: Right, *of: str | None) -> None:
        self.principal.check(right, *of, operation=operation.wire.name, asked=asked)

    def call_found(self, operation: Operation[R], check: CheckTopic) -> R:
        """Carry out an operation on what is found: see :meth:`tarry.api.local.AnyBroker.call_found`."""
        check_request(self.principal, operation, self._asked)
        right = cast(OnFound, operation.needs).right

        def check_both(topic: str | None, group: str | None = None, /) -> None:
            self.principal.check(right, topic, group, operation=operation.wire.name, asked=self._asked)
            check(topic, group)

        return self._broker.call_found(operation, check_both)

    def call_as(self, operation: Operation[R], asked: AskedBy, check: CheckTopic) -> R:
        """Carry out such an operation for an identity, which needs the right, too: as :meth:`call_found`."""
        return self.call_found(operation, check)

    def _check_access(self, asked: ops.CheckAccess) -> AccessDecision:
        if asked.identity in (None, self.principal.name):
            return self.principal.decide(asked)
        self.principal.check(Right.ADMIN, asked=self._asked)
        return self._broker.call(asked)

    # -- scheduling ----------------------------------------------------------------------------------------------------

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
        check_rows(self.principal, data, self._asked)
        submit = partial(self._broker.submit, data, lead=lead, internal=internal, own_handles=own_handles)
        self._submit(data, on_result, submit)

    def submit_checked(self, batch: pa.RecordBatch, on_result: OnAccepted, *, own_handles: bool = False) -> None:
        """Schedule a checked batch: see :meth:`tarry.api.local.AnyBroker.submit_checked`."""
        check_rows(self.principal, batch, self._asked)
        self._submit(batch, on_result, partial(self._broker.submit_checked, batch, own_handles=own_handles))

    def find_keyed(self, topic: str, key: str) -> pa.RecordBatch | Outcome:
        """Return the message under a key: see :meth:`tarry.api.local.AnyBroker.find_keyed`."""
        self.principal.check(Right.PRODUCE, topic, asked=self._asked)
        return self._broker.find_keyed(topic, key)

    def replace_keyed(self, topic: str, key: str, seq: int, successor: pa.RecordBatch) -> Outcome:
        """Replace the message under a key: see :meth:`tarry.api.local.AnyBroker.replace_keyed`."""
        self.principal.check(Right.PRODUCE, topic, asked=self._asked)
        check_rows(self.principal, successor, self._asked)
        self.principal.charge(1, body_bytes_of(successor), (topic,))
        return self._broker.replace_keyed(topic, key, seq, successor)

    def stage_job(self, number: int, batches: Iterable[pa.RecordBatch]) -> tuple[list[StagedFile], Counter[str]]:
        """Stage files of a bulk job: see :meth:`tarry.api.local.LocalBroker.stage_job`."""
        self.principal.check(Right.BULK, asked=self._asked)
        return self._local.stage_job(number, batches)

    def submit_dead(
        self, batch: pa.RecordBatch, on_result: OnAccepted, *, topic: str, group: str, attempts: Sequence[int]
    ) -> None:
        """Schedule dead letters: see :meth:`tarry.api.local.LocalBroker.submit_dead`."""
        self.principal.check(Right.CONSUME, topic, group, asked=self._asked)
        self._local.submit_dead(batch, on_result, topic=topic, group=group, attempts=attempts)

    # -- consuming -----------------------------------------------------------------------------------------------------

    def group(self, topic: str, name: str, *, start: str | None = None, broadcast: str | None = None) -> ConsumerGroup:
        """Return the group of that name: see :meth:`tarry.api.local.AnyBroker.group`."""
        self.principal.check(Right.CONSUME, topic, name, asked=self._asked)
        self._count_group(topic, name)
        return self._broker.group(topic, name, start=start, broadcast=broadcast)

    def find_group(self, topic: str, name: str) -> ConsumerGroup:
        """Look up a group that exists: see :meth:`tarry.api.local.AnyBroker.find_group`."""
        self.principal.check(Right.CONSUME, topic, name, asked=self._asked)
        return self._broker.find_group(topic, name)

    def open_subscription(self, request: Subscribe, account: QuotaAccount | None = None) -> Subscription:
        """Add a consumer to a group: see :meth:`tarry.api.local.LocalBroker.open_subscription`."""
        check_request(self.principal, request, self._asked)
        self._count_group(request.topic, request.group)
        return self._local.open_subscription(request, self.principal.account)

    # -- quotas --------------------------------------------------------------------------------------------------------

    def _submit(
        self, data: pa.RecordBatch | pa.Table, on_result: OnAccepted, submit: Callable[[OnAccepted], None]
    ) -> None:
        """Submit a batch, which counts until it is answered.

        Raises:
            QuotaExceededError: it is too much.
        """
        account = self.principal.account
        if account is None:
            submit(on_result)
            return
        size = data.nbytes
        if account.is_bounded:
            account.charge(data.num_rows, body_bytes_of(data), topics_of(data))
        account.begin_batch(size, self.config.inflight_bytes_max // SHARES)

        def on_answered(result: Accepted | TarryError) -> None:
            account.end_batch(size)
            on_result(result)

        try:
            submit(on_answered)
        except BaseException:
            account.end_batch(size)  # what is raised is the answer
            raise

    def _count_group(self, topic: str, name: str | None) -> None:
        if name is not None and self.principal.account is not None:
            self.principal.account.check_group(topic, name)

    @property
    def _local(self) -> LocalBroker:
        return cast(LocalBroker, self._broker)
