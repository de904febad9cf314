"""A client's session: it schedules, consumes, settles and calls operations, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from tarry.api.bounds import LEASE_MS, MESSAGES, PREFETCH
from tarry.api.internal_topics import check_open
from tarry.api.local import LocalBroker
from tarry.api.needs import Right
from tarry.api.operation import Operation
from tarry.api.operations import Receive
from tarry.base.errors import ForbiddenError, InvalidArgumentError, TarryError, UnavailableError
from tarry.fronts.kit.admission import Admission
from tarry.fronts.kit.callers import Callers
from tarry.fronts.kit.peer_proof import certificate_of
from tarry.fronts.kit.receiving import lease_ms_of
from tarry.fronts.link.flow import Flow
from tarry.fronts.link.group_calls import ClientGroupCalls
from tarry.fronts.link.groups import ServedGroup, not_there
from tarry.fronts.link.link_session import Handlers, NewLinkSession, Refuse
from tarry.fronts.link.outgoing import Outgoing
from tarry.fronts.link.questions import Questions
from tarry.fronts.link.receives import Receives
from tarry.fronts.link.receiving import LinkConsumers
from tarry.fronts.link.sending import ClientSubmissions
from tarry.fronts.link.settling import Settlements, check_leases
from tarry.fronts.link.shared import Shared
from tarry.fronts.link.staging import Staging
from tarry.identity.authenticator import Authenticator
from tarry.identity.principal import Principal
from tarry.identity.seen import seen_by
from tarry.link.frames import CLIENT, FrameKind, Pairs, Poll, error_frame

ROWS_MAX = 8192
"""Most messages in one BATCH."""
CONSUMERS_MAX = 1_000
"""Consumers of one connection, and as many receives."""
DRAIN_LOOK_S = 0.05
"""Seconds between checks that a client has settled what it holds, while the broker stops."""


class ClientSession:
    """A client's connection. On the loop's thread.

    All that its consumers hold goes to others when it ends.
    """

    def __init__(
        self,
        shared: Shared,
        callers: Callers,
        said: Mapping[str, Any],
        out: Outgoing,
        admission: Admission,
        refuse: Refuse,
    ) -> None:
        self._principal = _identified(callers.authenticator, said, admission)
        self._callers, self._out = callers, out
        # Whatever this connection does, it does by the broker as its caller sees it.
        self._asked = self._principal.asks(admission.peer_host)
        seen = seen_by(shared.broker, self._principal, self._asked)
        broker = cast(LocalBroker, seen)  # clients are in the broker's process
        self._shared = shared = replace(shared, broker=broker)
        callers.add(self, self._principal, refuse, counts=True)
        self.welcome: Mapping[str, Any] = {"identity": self._principal.name}
        self.flow = Flow(out)
        self._submissions = ClientSubmissions(shared, out, self.flow, self._principal)
        self._consumers = LinkConsumers(
            shared.groups,
            out,
            room=out,
            consumers_max=CONSUMERS_MAX,
            of_client=True,
            account_of=lambda _: self._principal.account,
        )
        self._receives = Receives(shared, out, CONSUMERS_MAX, self._principal, self._asked)
        self._staging = Staging(broker, shared.loop, shared.threads.staging, out, self.flow)
        self._stopping: UnavailableError | None = None
        self.handlers: Handlers = {
            FrameKind.SUBMIT: self._submit,
            FrameKind.POLL: self._poll,
            FrameKind.WITHDRAW: self._withdraw,
            FrameKind.RECEIVE: self._receive,
            FrameKind.STAGE: self._stage,
            FrameKind.PART: self._staging.add,
            FrameKind.RENEW: self._consumers.renew,
            FrameKind.CLOSE: self._consumers.close,
            FrameKind.RETURN: self._return,
            FrameKind.SETTLE: Settlements(shared.groups, out, self.flow, self._check_group).settle,
            FrameKind.GROUP: ClientGroupCalls(shared, out, self.flow, self._principal, self._asked).answer,
            **Questions(shared, out, (FrameKind.CALL,), _check, self.flow).handlers,
        }

    def on_writable(self) -> None:
        """Read on, or do not: nothing more is begun for a client that does not read its answers."""
        self.flow.look()

    def on_drain(self) -> None:
        """Tell the client that the broker stops, and close when it has settled what it holds."""
        self._stopping = UnavailableError("the broker is stopping; try again later")
        self._consumers.stop_waiting()
        self._receives.stop_waiting()
        self._out.write(error_frame(0, self._stopping))
        self._close_when_idle()

    def end(self) -> None:
        """Give back what the client's consumers hold: the connection is lost."""
        self._callers.remove(self)
        self._receives.end()
        self._staging.end()
        self._consumers.close_all()

    def _close_when_idle(self) -> None:
        transport = self._out.transport
        if transport.is_closing():
            return
        if self.flow.is_idle and not self._consumers.held and not len(self._receives):
            self._out.flush()
            transport.close()
        else:
            self._shared.loop.call_later(DRAIN_LOOK_S, self._close_when_idle)

    def _submit(self, number: int, payload: memoryview) -> None:
        self._check_serving()
        self._submissions.submit(number, payload)

    def _poll(self, number: int, payload: memoryview) -> None:
        try:
            self._consumers.poll(number, self._checked(Poll.decode(payload)))
        except TarryError as error:
            self._consumers.on_nothing(number, error)

    def _receive(self, number: int, payload: memoryview) -> None:
        self._check_serving()
        self._receives.receive(number, payload)

    def _stage(self, number: int, payload: memoryview) -> None:
        self._check_serving()
        self._staging.begin(number, payload)

    def _withdraw(self, number: int, payload: memoryview) -> None:
        self._receives.withdraw(number)
        self._consumers.withdraw(number, payload)

    def _checked(self, asked: Poll) -> Poll:
        self._check_serving()
        if asked.identity:
            raise InvalidArgumentError("a POLL names an identity; allowed: of a worker")
        self._check_group(self._shared.groups.find(asked.group))
        PREFETCH.check("prefetch", asked.prefetch)
        MESSAGES.check("rows_max", asked.rows_max)
        lease_ms = asked.lease_ms or self._lease_ms(asked.group)
        LEASE_MS.check("lease_ms", lease_ms)
        return asked._replace(lease_ms=lease_ms, rows_max=min(asked.rows_max, ROWS_MAX))

    def _check_serving(self) -> None:
        if self._stopping is not None:
            raise self._stopping

    def _check_group(self, served: ServedGroup) -> None:
        """Ask for the right to consume: numbers of groups are those of the whole port.

        Raises:
            NotFoundError: it is missing. Whoever guesses a number is not told whose it is.
        """
        try:
            self._principal.check(Right.CONSUME, served.group.topic_name, served.group.name, asked=self._asked)
        except ForbiddenError:
            raise not_there(served.number) from None

    def _lease_ms(self, group: int) -> int:
        return lease_ms_of(self._shared.groups.find(group).group, self._shared.broker)

    def _return(self, number: int, payload: memoryview) -> None:
        pairs = Pairs.decode(payload)
        check_leases(pairs.leases)
        subscription = self._consumers.subscription(number) or self._receives.subscription(number)
        if subscription is not None:
            subscription.give_back(pairs.leases, pairs.offsets)


def client_sessions(shared: Shared) -> dict[str, NewLinkSession]:
    """Return the sessions of a port for clients: see :class:`tarry.fronts.link.port.LinkPort`."""
    callers = Callers(shared.broker, shared.loop, "link")
    shared.on_close.append(callers.close)
    return {CLIENT: partial(ClientSession, shared, callers)}


def _identified(authenticator: Authenticator, said: Mapping[str, Any], admission: Admission) -> Principal:
    """Return the caller that a greeting is of.

    Raises:
        UnauthenticatedError: it has to say who it is, and does not.
    """
    token, proof = said.get("token"), admission.principal
    if not isinstance(token, str | None):
        raise InvalidArgumentError(f"token is a {type(token).__name__}; allowed: a text")
    if token is None and proof is not None and proof.kind == "user":
        owner = authenticator.by_user(int(proof.name))
        if owner is not None:
            return owner
    return authenticator.by_token(token, certificate_of(proof), peer=admission.peer_host)


def _check(operation: Operation[Any]) -> None:
    check_open(operation)
    if isinstance(operation, Receive):
        raise InvalidArgumentError(
            f"op is {operation.wire.name!r}, which may wait; allowed by the link: a frame RECEIVE or POLL"
        )
