"""A broker as fronts see it: all operations, batches to schedule, and consumers that never wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tarry.api.access import AccessToken
from tarry.api.accounts import QuotaAccount, QuotaAccounts
from tarry.api.audit import AskedBy, NotesRefusals
from tarry.api.board import Member, OnMessage
from tarry.api.clear_ports import ClearPorts
from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.api.credential_uses import CredentialUses
from tarry.api.identities import Identity
from tarry.api.issuers import TokenIssuer
from tarry.api.jobs import StagedFile
from tarry.api.operation import Operation
from tarry.api.operations.delivery import Subscribe
from tarry.api.operations.queries import ListPending
from tarry.api.outcome import Outcome
from tarry.api.pushing import PushSubscriptions
from tarry.api.views import Page
from tarry.base.clock import Clock
from tarry.base.config import Config
from tarry.base.errors import TarryError
from tarry.message.accepted import Accepted

R = TypeVar("R")

OnAccepted = Callable[[Accepted | TarryError], None]
"""Callback for the answer to a batch.

Called once, from the thread that made the batch durable; be quick, never raise.
"""


class CheckTopic(Protocol):
    """Refuses a caller without a right on a topic, and a group of it. None: it cannot be told.

    What it refuses by ForbiddenError is answered as what is not there.
    """

    def __call__(self, topic: str | None, group: str | None = None, /) -> None: ...


def any_topic(topic: str | None, group: str | None = None, /) -> None:
    """Refuse nothing: a :class:`CheckTopic` for whoever may do everything."""


class FrontState(Protocol):
    """A small durable file of a front's own state. Any thread; waits for the disk. One writer at a time."""

    def read(self) -> dict[str, Any] | None:
        """Return the fields that were written last; None: nothing was written.

        Raises:
            CorruptError: they are damaged.
        """
        ...

    def write(self, fields: Mapping[str, Any]) -> None:
        """Put these in their place, durably when it returns.

        Raises:
            DiskFullError, OverloadedError: nothing was changed.
        """
        ...


class AnyBroker(Protocol):
    """A broker as fronts see it, in this process or behind a link. Any thread.

    :class:`tarry.api.calls.Calls` has the operations as methods, where that is handier.
    """

    @property
    def config(self) -> Config: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def epoch(self) -> int | None:
        """The number of the broker's life as the owner of its logs; None: nobody can take them over."""
        ...

    def join(self, front: str, on_message: OnMessage) -> Member:
        """Be one of the processes of a front; ``on_message`` gets what the others send."""
        ...

    @property
    def identities(self) -> tuple[Identity, ...]:
        """All identities, as they are now: a new object after each change. Without any, nobody is asked."""
        ...

    def listen_to_identities(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change of the identities, from any thread; return what ends this."""
        ...

    @property
    def accounts(self) -> QuotaAccounts:
        """The use of identities in this process, held against their quotas."""
        ...

    @property
    def credential_uses(self) -> CredentialUses:
        """The place where authenticators note which credentials are used."""
        ...

    @property
    def clear_ports(self) -> ClearPorts:
        """The place where doors note that other machines may speak without TLS there."""
        ...

    @property
    def token_issuers(self) -> Sequence[TokenIssuer]:
        """The providers whose tokens are taken in this process; none: no such tokens are."""
        ...

    def access_secret(self, credential: str) -> bytes | None:
        """Return the secret of an access key, by its credential's id; None: it is not known here.

        It is for authenticators. No operation has it, and no wire carries it but the Unix socket between a broker and
        its own workers.
        """
        ...

    @property
    def access_tokens(self) -> tuple[AccessToken, ...]:
        """All access tokens, as they are now: a new object after each change."""
        ...

    def call(self, operation: Operation[R]) -> R:
        """Carry an operation out, and wait for its result; it may wait for the disk.

        Raises:
            TarryError: it was refused.
        """
        ...

    def call_by(self, operation: Operation[R], asked: AskedBy) -> R:
        """Carry an operation out as :meth:`call` does, and say in the audit log who asked for it.

        That caller's rights were looked at before.
        """
        ...

    @property
    def refusals(self) -> NotesRefusals:
        """Is told who was refused."""
        ...

    def call_found(self, operation: Operation[R], check: CheckTopic) -> R:
        """Carry out an operation on a message that has to be found first; one that needs ``OnFound``.

        ``check`` gets the topic of what was found, before anything is changed or returned, and raises what is to be
        answered instead.
        """
        ...

    def call_as(self, operation: Operation[R], asked: AskedBy, check: CheckTopic) -> R:
        """Carry out such an operation, or one on a push subscription, for an identity.

        ``check`` asks for that identity's rights. A broker behind a link has the broker ask for them by the name in
        ``asked``: only there is the topic known before anything is changed. The credential in it tells an identity
        from a principal of the front's own with the same name. The audit log has it, if it has such operations.
        """
        ...

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
        """Schedule a batch, all of it or nothing (columns: :func:`tarry.message.admission.admit`).

        With ``lead``, the caller's thread may do the write, and this returns when the disk has answered. ``internal``:
        the rows are a front's own, and may be for topics of Tarry's own. ``own_handles``: the rows are of several
        callers, and the handle of one must not stand for those of the others.

        Raises:
            InvalidMessageError, OverloadedError, DiskFullError, ClosedError, FatalError: nothing was accepted, and
            ``on_result`` is not called.
        """
        ...

    def submit_checked(self, batch: pa.RecordBatch, on_result: OnAccepted, *, own_handles: bool = False) -> None:
        """Schedule as :meth:`submit` a batch that the caller has checked row by row.

        Its columns are :data:`tarry.message.schema.UNNUMBERED` (:func:`tarry.message.admission.assembled`).
        ``own_handles``: as there.
        """
        ...

    def find_keyed(self, topic: str, key: str) -> pa.RecordBatch | Outcome:
        """Return the message that is pending under a key; or what became of it.

        It is one row of :data:`tarry.message.schema.SCHEMA`.
        """
        ...

    def replace_keyed(self, topic: str, key: str, seq: int, successor: pa.RecordBatch) -> Outcome:
        """Replace a message that :meth:`find_keyed` has found; return what became of it, durably.

        ``seq`` is that message's. ``successor`` is one row of :data:`tarry.message.schema.UNNUMBERED`, of any topic,
        checked already.

        Raises:
            StaleCommitError: another message is under that key by now: it was replaced, or has gone on to its next
            occurrence. OverloadedError, DiskFullError: not now. Nothing was changed.
        """
        ...

    # -- consuming -----------------------------------------------------------------------------------------------------

    def group(self, topic: str, name: str, *, start: str | None = None, broadcast: str | None = None) -> ConsumerGroup:
        """Return the group of that name; a new one is made durably.

        ``broadcast``: a consumer's name. Then the group is that consumer's own, ``name@consumer``, and begins at the
        latest.
        """
        ...

    def find_group(self, topic: str, name: str) -> ConsumerGroup:
        """Look up a group that exists.

        Raises:
            NotFoundError: there is none of that name.
        """
        ...


class LocalBroker(AnyBroker, Protocol):
    """A broker in this process, which can do more than one that is asked from elsewhere."""

    @property
    def push(self) -> PushSubscriptions: ...

    def list_whole(self, request: ListPending) -> Page:
        """Return a page of pending messages; those of Tarry's own topics, too, with all that they say.

        It is for the front whose topic it is, and for nobody that asks a front.
        """
        ...

    def listen_to_tokens(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after each change of the access tokens, from any thread; return what ends this."""
        ...

    def front_state(self, name: str) -> FrontState:
        """Return the file ``classic-NAME.json`` of a front's own state."""
        ...

    def submit_dead(
        self, batch: pa.RecordBatch, on_result: OnAccepted, *, topic: str, group: str, attempts: Sequence[int]
    ) -> None:
        """Schedule what a group's consumers have given up by their own count, as dead letters of the group.

        The batch (:data:`tarry.message.schema.SCHEMA`) has messages of ``topic``; otherwise as :meth:`submit_checked`.
        A second call for the same messages makes no second dead letters, since their ids are the same.
        ``attempts``: how often each was handed out. May wait for the disk.
        """
        ...

    def stage_job(self, number: int, batches: Iterable[pa.RecordBatch]) -> tuple[list[StagedFile], Counter[str]]:
        """Write batches as files of a bulk job's attempt, for its commit; also return the count of each topic."""
        ...

    def open_subscription(self, request: Subscribe, account: QuotaAccount | None = None) -> Subscription:
        """Add a consumer to a group, which is created (durably) when it is new.

        ``account``: the use of the consumer's identity.
        """
        ...
