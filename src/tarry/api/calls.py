"""The operations as methods: blocking in :class:`Calls`, for asyncio in :class:`AsyncCalls`.

A broker in this process and a client of a remote one inherit them, so that they look alike, and single messages are
scheduled with the same arguments. Consuming is not here: it differs between the two.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import wraps
from types import MethodType, NoneType
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, get_args, get_origin, get_type_hints, overload

from tarry.api import operations as ops
from tarry.api.gathering import Cancelling, of_one
from tarry.api.operation import Operation
from tarry.api.outcome import Outcome
from tarry.base.delay import Delay
from tarry.base.errors import InvalidArgumentError
from tarry.message.options import MessageOptions
from tarry.message.receipt import Receipt
from tarry.message.rows import Row, make_row, plain_row

P = ParamSpec("P")
R = TypeVar("R")


class method(Generic[P, R]):  # noqa: N801  it stands where a method is defined
    """A method with the arguments of ``request``, which makes the operation.

    :class:`AsyncCalls` has it as a method to await.
    """

    def __init__(self, request: Callable[P, Operation[R]]) -> None:
        @wraps(request)
        def call(self: Calls, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return self.call(request(*args, **kwargs))

        @wraps(request)
        async def call_awaited(self: AsyncCalls, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return await self.call(request(*args, **kwargs))

        self._request = request
        self._call, self._call_awaited = call, call_awaited
        self._is_signed = False

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def _sign(self) -> None:
        """Have ``inspect`` and ``help`` show the method, not the request that it wraps.

        Most processes never ask, so this is done when the method is first used, not at import.
        """
        self._is_signed = True
        signature = signature_of(self._request)
        functions: tuple[tuple[Any, type], ...] = ((self._call, Calls), (self._call_awaited, AsyncCalls))
        for function, owner in functions:
            function.__name__, function.__qualname__ = self._name, f"{owner.__name__}.{self._name}"
            function.__module__ = __name__
            function.__signature__ = signature

    @overload
    def __get__(self, instance: Calls, owner: Any) -> Callable[P, R]: ...
    @overload
    def __get__(self, instance: AsyncCalls, owner: Any) -> Callable[P, Awaitable[R]]: ...
    @overload
    def __get__(self, instance: None, owner: Any) -> Callable[..., Any]: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        if not self._is_signed:
            self._sign()
        function = self._call_awaited if issubclass(owner, AsyncCalls) else self._call
        return function if instance is None else MethodType(function, instance)


def signature_of(request: Callable[..., Operation[Any]]) -> inspect.Signature:
    """Return the signature of the method for ``request``: its arguments, and the operation's result."""
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kind: Any = getattr(request, "__self__", request)  # `request` is the operation's class, or a class method of it
    [result] = [get_args(base)[0] for base in kind.__orig_bases__ if get_origin(base) is Operation]
    hints = get_type_hints(request)
    given = [each.replace(annotation=hints[name]) for name, each in inspect.signature(request).parameters.items()]
    return inspect.Signature([itself, *given], return_annotation=None if result is NoneType else result)


class _Methods:
    cancel_many = method(ops.Cancel)
    cancel_keys = method(ops.CancelKeys)
    reschedule = method(ops.Reschedule.of)
    reschedule_key = method(ops.Reschedule.of_key)
    find_key = method(ops.FindKey)

    find_message = method(ops.FindMessage)
    discard_message = method(ops.DiscardMessage)

    set_group = method(ops.SetGroup.of)
    group_info = method(ops.GetGroup)
    consumers = method(ops.ListConsumers)
    groups = method(ops.ListGroups)
    delete_group = method(ops.DeleteGroup)
    pause = method(ops.PauseGroup)
    resume = method(ops.ResumeGroup)
    seek = method(ops.Seek)
    set_topic = method(ops.SetTopic.of)
    topic_info = method(ops.GetTopic)
    has_topic = method(ops.HasTopic)

    dead_letters = method(ops.ListDeadLetters)
    respawn = method(ops.Respawn)
    purge = method(ops.Purge)

    set_push = method(ops.SetPushSubscription)
    push_info = method(ops.GetPushSubscription)
    push_subscriptions = method(ops.ListPushSubscriptions)
    delete_push = method(ops.DeletePushSubscription)
    pause_push = method(ops.PausePushSubscription)
    resume_push = method(ops.ResumePushSubscription)
    push_attempts = method(ops.ListPushAttempts)
    test_push = method(ops.TestPushSubscription)

    pending = method(ops.GetPending)
    list_pending = method(ops.ListPending)
    peek = method(ops.Peek)
    forecast = method(ops.GetForecast)
    rates = method(ops.GetRates)
    history = method(ops.GetHistory)
    get_message = method(ops.GetMessage)
    get_handles = method(ops.GetHandles)
    status = method(ops.GetStatus)
    overview = method(ops.GetOverview)
    ping = method(ops.Ping)

    jobs = method(ops.ListJobs)
    cancel_job = method(ops.CancelJob)

    create_token = method(ops.CreateToken)
    tokens = method(ops.ListTokens)
    limit_token = method(ops.LimitToken)
    delete_token = method(ops.DeleteToken)

    set_identity = method(ops.SetIdentity)
    list_identities = method(ops.ListIdentities)
    delete_identity = method(ops.DeleteIdentity)
    add_credential = method(ops.AddCredential)
    remove_credential = method(ops.RemoveCredential)
    whoami = method(ops.WhoAmI)
    get_quota_use = method(ops.GetQuotaUse)
    check_access = method(ops.CheckAccess)
    audit_log = method(ops.ReadAuditLog)

    queue_state = method(ops.GetQueues)
    read_queue = method(ops.ReadQueue)
    offset_at = method(ops.FindOffset)
    follow_queue = method(ops.FollowQueue)
    advance_group = method(ops.AdvanceGroup)
    cancelled_between = method(ops.ReadCancellations)

    begin_backup = method(ops.BeginBackup)
    extend_backup = method(ops.ExtendBackup)
    end_backup = method(ops.EndBackup)
    record_backup = method(ops.RecordBackup)

    test_clock = method(ops.GetClock)
    advance_clock = method(ops.AdvanceClock)


class Calls(_Methods):
    """Each method makes an operation and has :meth:`call` carry it out; any thread."""

    def call(self, operation: Operation[R]) -> R:
        """Carry an operation out, and wait for its result.

        Raises:
            TarryError: it was refused, or there was no answer.
        """
        raise NotImplementedError

    def schedule(
        self,
        topic: str,
        body: bytes | str,
        *,
        delay: Delay | None = None,
        due: datetime | int | None = None,
        **options: Unpack[MessageOptions],
    ) -> Receipt:
        """Schedule a message; when this returns, it is durable.

        Args:
            topic: where it will be delivered.
            body: what; a text is encoded as UTF-8.
            delay: how long from now: seconds, a timedelta, "1h30m", an aware datetime, ``DelayLevel(n)`` (of the
                broker's table). At once without ``delay`` and ``due``.
            due: the instant instead: an aware datetime, or UTC milliseconds.
            options: id, key, ttl and more; see :data:`tarry.message.options.OPTIONS`.

        Raises:
            KeyExistsError: ``on_key`` is "refuse", and a message of this key is pending; nothing was scheduled.
            InvalidMessageError, InvalidArgumentError: a value is not allowed; nothing was scheduled.
            OverloadedError, DiskFullError: not now; nothing was scheduled, try again later.
            UnavailableError: there was no answer, or only that another broker has taken over. The message **may have
                been accepted**; a client never sends it twice by itself. To schedule it again may make it come twice,
                unless it has an id or a key.
        """
        # Handing on arguments that are not there takes a twentieth of a call.
        row = make_row(topic, body, delay=delay, due=due, **options) if options else plain_row(topic, body, delay, due)
        return self._schedule(row)

    def _schedule(self, row: Row) -> Receipt:
        """Schedule the message of a row, and wait until it is durable."""
        raise NotImplementedError

    def cancel(self, handle: str | Receipt) -> Outcome:
        """Cancel the message that a handle or its receipt names, durably; of a series, all that is to come.

        Returns:
            "done": no consumer will ever get it. "delivered": it was due already. "cancelled": it had been cancelled,
            replaced or rescheduled before. "unknown": nothing is known of it any more.

        Raises:
            InvalidArgumentError: no handle, or a damaged one. ForgedHandleError: this broker did not make it.
            OverloadedError, DiskFullError: not now; nothing was changed.
            UnavailableError: no answer. It may have been cancelled; ask again: "cancelled" says that it was.
        """
        try:
            [outcome] = self.cancel_many([_handle_of(handle)])
        except InvalidArgumentError as error:
            raise of_one(error) from None
        return outcome

    def cancel_key(self, topic: str, key: str) -> Outcome:
        """Cancel what is pending under ``key`` in ``topic``; "unknown" where nothing is known of that key."""
        [outcome] = self.cancel_keys(topic, [key])
        return outcome


def _handle_of(named: str | Receipt) -> str:
    return named.handle if isinstance(named, Receipt) else named


class AsyncCalls(_Methods):
    """:class:`Calls`, to be awaited."""

    def __init__(self) -> None:
        self._cancelling = Cancelling(self.cancel_many)

    async def call(self, operation: Operation[R]) -> R:
        """See :meth:`Calls.call`."""
        raise NotImplementedError

    async def schedule(
        self,
        topic: str,
        body: bytes | str,
        *,
        delay: Delay | None = None,
        due: datetime | int | None = None,
        **options: Unpack[MessageOptions],
    ) -> Receipt:
        """Schedule a message, as :meth:`Calls.schedule`.

        Messages that several tasks schedule at the same time travel together. A task that is cancelled may have
        scheduled its message.
        """
        row = make_row(topic, body, delay=delay, due=due, **options) if options else plain_row(topic, body, delay, due)
        return await self._schedule(row)

    def _schedule(self, row: Row) -> asyncio.Future[Receipt]:
        """Schedule the message of a row; done when it is durable."""
        raise NotImplementedError

    async def cancel(self, handle: str | Receipt) -> Outcome:
        """Cancel as :meth:`Calls.cancel`; handles that several tasks cancel at the same time travel together."""
        return await self._cancelling.cancel(_handle_of(handle))

    async def cancel_key(self, topic: str, key: str) -> Outcome:
        """Cancel as :meth:`Calls.cancel_key`."""
        [outcome] = await self.cancel_keys(topic, [key])
        return outcome
