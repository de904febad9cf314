"""A broker elsewhere, as a front of this process sees it: a ``AnyBroker`` behind a link.

It implements :class:`tarry.api.local.AnyBroker`. Columns, polls and settlements go over the link; operations, and
rare questions, go on connections of their own (:mod:`tarry.link.blocking`). The worker's clock is the
broker's: on the same machine it is the same one, otherwise it is set by the time that the broker reports.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

import pyarrow as pa

from tarry.api.access import AccessToken
from tarry.api.audit import AskedBy
from tarry.api.board import Member, OnMessage
from tarry.api.clear_ports import ClearPorts
from tarry.api.credential_uses import WORKERS_KEY, CredentialUses
from tarry.api.identities import Identity
from tarry.api.internal_topics import check_rows
from tarry.api.issuers import TokenIssuer
from tarry.api.local import CheckTopic, OnAccepted
from tarry.api.operation import Operation, Rows
from tarry.api.operations import (
    DeleteGroup,
    GetPending,
    GetPushSubscription,
    HasTopic,
    ListGroups,
    Ping,
    SetGroup,
    SetTopic,
)
from tarry.api.outcome import Outcome
from tarry.api.push import not_there
from tarry.api.wire import decode_json, encode_json
from tarry.base.clock import Clock, SystemClock
from tarry.base.config import Config, load
from tarry.base.endpoint import are_sockets
from tarry.base.errors import ForbiddenError, MessageTooLargeError, TarryError
from tarry.fronts.gateway.authentication import Trust
from tarry.fronts.gateway.remote.accounts import RemoteAccounts
from tarry.fronts.gateway.remote.board import RemoteMember
from tarry.fronts.gateway.remote.group import RemoteGroup
from tarry.fronts.gateway.remote.groups import RemoteGroups
from tarry.fronts.gateway.remote.identities import RemoteIdentities
from tarry.fronts.gateway.remote.issuers import RemoteIssuers
from tarry.fronts.gateway.remote.lease import RemoteLease
from tarry.fronts.gateway.remote.link import Link, greeting
from tarry.fronts.registry import FRONTS, ServerConfig
from tarry.identity.accounts import AccountBook, Existing
from tarry.identity.refusals import Line, Refusals
from tarry.link.blocking import BlockingLink
from tarry.link.frames import (
    ASKED_BYTES_MAX,
    CONTROL,
    LINK,
    FrameKind,
    decode_accepted,
    decode_batch,
    decode_rows,
    encode_batch,
    numbered,
)
from tarry.link.places import BrokerPlaces
from tarry.link.ranges import read_range
from tarry.link.results import decode_result
from tarry.message.columns import stream_bytes
from tarry.message.schema import SCHEMA

log = logging.getLogger(__name__)

R = TypeVar("R")

OWN_SETTINGS = (
    "data",
    *("gateway_secret", "gateway_tls_ca"),
    *(name for front in FRONTS for name in front.own_settings),
)
"""Settings about files: those of the gateway's machine, if it is another one than the broker's."""
OWN_IF_GIVEN = ("tls_clients", "tls_version_min")
"""Settings of the gateway's machine where they are given there; else the broker's."""
NO_MORE: Mapping[str, Any] = {}
TOLD_USES_MAX = 10_000
"""Credentials that a worker tells the broker of at a time."""
TOPICS_MAX = 100_000
"""Topics that are remembered as existing."""


class FoundOwner(NamedTuple):
    """Address and epoch of the broker that a worker has found, for workers after it."""

    address: str
    epoch: int | None


class BrokerClock:
    """The broker's clock, computed from that of this machine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def start_ms(self) -> int:
        return self._clock.start_ms() + self._ahead_ms

    def seconds_until(self, due_ms: int) -> float:
        return self._clock.seconds_until(due_ms - self._ahead_ms)

    def elapsed_s(self) -> float:
        return self._clock.elapsed_s()

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> None:
        self._clock.wait(condition, timeout_s)

    def measure(self, ask: Callable[[], int]) -> None:
        """Measure the difference by asking the broker for its time.

        A difference within the time of the round trip counts as none.
        """
        before = self._clock.now_ms()
        broker_ms = ask()
        after = self._clock.now_ms()
        ahead_ms = broker_ms - (before + after) // 2
        self._ahead_ms = ahead_ms if abs(ahead_ms) > max(1, after - before) else 0


class RemoteBroker:
    """The broker behind a gateway, made by a worker; call :meth:`connect` on its front's loop.

    Submitting, groups and operations on leases need the loop's thread, on which fronts call them. The other methods
    wait, in any thread.
    """

    def __init__(
        self,
        addresses: str,
        worker: str,
        front: str,
        name: str,
        own: Mapping[str, Any] | None = None,
        found: FoundOwner | None = None,
    ) -> None:
        """Find the broker's owner in one turn over ``addresses``, and greet it.

        All connections are to that one.

        ``own``: settings in place of the broker's, of :data:`OWN_SETTINGS` and :data:`OWN_IF_GIVEN`. ``found``: what
        was found before.

        Raises:
            InvalidArgumentError: no address, or the broker does not take this gateway. UnavailableError: there is no
            broker.
        """
        self._worker, self._front, self._name = worker, front, name
        self._is_near = are_sockets(addresses)
        self._trust = Trust() if self._is_near else Trust.of_gateway(own or {})
        places = BrokerPlaces.of(addresses)
        if found is not None:
            places.resume(*found)
        self._control = BlockingLink(places, greeting(CONTROL, worker, front, ""), self._trust, find_s=0.0)
        self._clock = BrokerClock(SystemClock())
        self._member = RemoteMember()
        self._lease = RemoteLease()
        self._groups = RemoteGroups(self._control, self._clock, self._lease.lasts)
        self._topics: set[str] = set()
        self._tokens: tuple[AccessToken, ...] = ()
        self._accounts = RemoteAccounts(self._clock, self._existing)
        self._identities = RemoteIdentities(self._accounts.book)
        self._uses = CredentialUses()
        self._clear_ports = ClearPorts()
        self._issuers = RemoteIssuers(self._clock, self._ask_keys)
        self.refusals = Refusals(self._clock.now_ms, self._tell_refusal)
        """Is told who was refused here; the broker is told within the same bounds."""
        self._told_refusals: Counter[str] = Counter()
        self._link: Link | None = None
        try:
            self._begin(own or {})
        except BaseException:
            self._control.close()
            raise

    def _begin(self, own: Mapping[str, Any]) -> None:
        """Greet the owner, and take its settings and its clock."""
        welcome = self._control.greet()
        settings: Mapping[str, Any] = welcome["config"]
        self._epoch: int | None = welcome.get("epoch")
        self._address = self._control.stay().text
        if not self._is_near:
            self.measure_clock()
        shared = {name: value for name, value in settings.items() if name in ServerConfig.model_fields}
        self._config = load(None, {**shared, **own}, {}, model=ServerConfig).config

    @property
    def found(self) -> FoundOwner:
        """The broker's address, and its epoch."""
        return FoundOwner(self._address, self._epoch)

    async def connect(self, on_lost: Callable[[], None]) -> None:
        """Open the link, on the running loop; ``on_lost`` is called there when it has ended.

        Raises:
            UnavailableError: there is no broker.
        """
        said = greeting(LINK, self._worker, self._front, self._name)
        told = self._identities

        def lost() -> None:
            self._lease.end()
            told.on_lost()
            on_lost()

        on_told = {
            FrameKind.TOKENS: self._on_tokens,
            FrameKind.ISSUERS: self._issuers.on_told,
            FrameKind.IDENTITIES: told.on_told,
        }
        self._link = await Link.open(self._address, said, self._trust, self._groups, self._member, on_told, lost)
        self._groups.link = self._member.link = self._link
        self._accounts.begin(self._link)
        if self._epoch is not None:
            await self._lease.begin(self._link)
        await told.wait_told()

    def close(self) -> None:
        """Close the connections for questions; the link ends with its loop."""
        self._control.close()

    @property
    def link(self) -> Link:
        """The stream of columns."""
        assert self._link is not None, "connect() comes first"
        return self._link

    def say(self, status: Mapping[str, Any]) -> None:
        """Send this worker's status to the broker, which shows it in its status and metrics."""
        self.refusals.flush()
        link = self.link
        rows = {"sent": link.rows_in, "received": link.rows_out, "batches": link.batches_in}
        self._member.post("status", {**status, **rows, "clear_ports": self._clear_ports.shown()})

    def _tell_refusal(self, line: Line) -> None:
        """Tell the broker of a refusal, and how many there were. Any thread."""
        counts, link = Counter(self.refusals.counts), self._link
        if link is not None:
            more, self._told_refusals = counts - self._told_refusals, counts
            link.send_from_anywhere(FrameKind.NOTE, 0, encode_json({"lines": [line], "counts": more}))

    def say_uses(self) -> None:
        """Tell the broker which credentials were used since this was called last, for it to keep the day."""
        self._member.post(WORKERS_KEY, {"credentials": sorted(self._uses.take())[:TOLD_USES_MAX]})

    @property
    def is_near(self) -> bool:
        """True if the broker is on this machine.

        Then its clock is the same, and its end is noticed at once.
        """
        return self._is_near

    def measure_clock(self) -> None:
        """Measure the difference to the broker's clock.

        Raises:
            UnavailableError: there is no answer.
        """
        self._clock.measure(lambda: int(self.call(Ping())["now_ms"]))

    # -- see tarry.api.local -------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        return self._config

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def epoch(self) -> int | None:
        return self._epoch

    def join(self, front: str, on_message: OnMessage) -> Member:
        self._member.join(on_message)
        return self._member

    @property
    def access_tokens(self) -> tuple[AccessToken, ...]:
        """The tokens that the broker has told of: a change is known here a moment later."""
        return self._tokens

    @property
    def credential_uses(self) -> CredentialUses:
        return self._uses

    @property
    def clear_ports(self) -> ClearPorts:
        """Those of this process, which :meth:`say` tells the broker."""
        return self._clear_ports

    @property
    def token_issuers(self) -> Sequence[TokenIssuer]:
        """The providers that the broker has told of: other keys are known here a moment later."""
        return self._issuers.all

    def access_secret(self, credential: str) -> bytes | None:
        """Return what the broker has told: by a Unix socket all secrets of access keys, by TCP none."""
        return self._identities.secrets.get(credential)

    @property
    def identities(self) -> tuple[Identity, ...]:
        """The identities that the broker has told of: a change is known here a moment later.

        Raises:
            UnavailableError: it has told none yet.
        """
        return self._identities.snapshot

    @property
    def accounts(self) -> AccountBook:
        return self._accounts.book

    def _existing(self) -> Existing:
        counts, groups = self.call(GetPending(next_due=False)), self.call(ListGroups())
        return Existing.of(counts, ((group.topic, group.group) for group in groups))

    def listen_to_identities(self, on_change: Callable[[], None]) -> Callable[[], None]:
        return self._identities.listen(on_change)

    def _ask_keys(self, issuer: str) -> None:
        """Have the broker look for newer keys of a provider. Any thread."""
        if self._link is not None:
            self._link.send_from_anywhere(FrameKind.ISSUER_KEYS, 0, encode_json({"issuer": issuer}))

    def _on_tokens(self, tokens: Sequence[Mapping[str, Any]]) -> None:
        self._tokens = tuple(AccessToken(**token) for token in tokens)

    def call(self, operation: Operation[R]) -> R:
        if isinstance(operation, HasTopic) and operation.topic in self._topics:
            return cast(R, True)  # a topic that exists stays
        wire, answer = operation.wire, self._answer(operation)
        result: Any
        if isinstance(wire, Rows) and wire.goes_on_by is not None:
            result = self._range(operation, wire.goes_on_by, decode_rows(answer))
        else:
            result = decode_result(operation, answer)
        self._on_called(operation, result)
        return cast(R, result)

    def call_by(self, operation: Operation[R], asked: AskedBy) -> R:
        result: R = decode_result(operation, self._answer(operation, {"by": asked.fields()}))
        self._on_called(operation, result)
        return result

    def call_found(self, operation: Operation[R], check: CheckTopic) -> R:
        # Only the broker could tell the topic before anything is changed.
        check(getattr(operation, "topic", None))
        return self.call(operation)

    def call_as(self, operation: Operation[R], asked: AskedBy, check: CheckTopic) -> R:
        if self._identities.has(asked.who, asked.credential):
            result: R = decode_result(operation, self._answer(operation, {"as": asked.who, "by": asked.fields()}))
            return result
        # A principal of the front's own, of which the broker knows nothing.
        if isinstance(operation, GetPushSubscription):
            info = self.call(operation)
            try:
                check(info.topic, info.group)
            except ForbiddenError:
                raise not_there(info.name) from None
            return cast(R, info)
        return self.call_found(operation, check)

    def _answer(self, operation: Operation[Any], more: Mapping[str, Any] = NO_MORE) -> memoryview:
        asked = {"op": operation.wire.name, **operation.to_wire(), **more}
        return self._control.ask(FrameKind.CALL, encode_json(asked))[1]

    def _range(self, operation: Any, goes_on_by: str, first: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield all batches of a range of which ``first`` is a part; others are asked for when needed."""
        return read_range(
            first, lambda start: decode_rows(self._answer(replace(operation, start=start))), goes_on_by, operation.end
        )

    def _on_called(self, operation: Operation[Any], result: Any) -> None:
        if isinstance(operation, HasTopic) and result and len(self._topics) < TOPICS_MAX:
            self._topics.add(operation.topic)
        if isinstance(operation, SetGroup | DeleteGroup):
            self._groups.refresh(operation.topic, operation.group)
        elif isinstance(operation, SetTopic):
            self._groups.refresh_topic(operation.topic)

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
        if not internal:
            check_rows(data)  # the broker takes rows from the link as the front's own, and does not check them
        batches = data.to_batches() if isinstance(data, pa.Table) else [data]
        kind = FrameKind.SUBMIT_OWN if own_handles else FrameKind.SUBMIT
        self._submit(kind, stream_bytes(data.schema, batches), data.num_rows, on_result)

    def submit_checked(self, batch: pa.RecordBatch, on_result: OnAccepted, *, own_handles: bool = False) -> None:
        kind = FrameKind.SUBMIT_CHECKED_OWN if own_handles else FrameKind.SUBMIT_CHECKED
        self._submit(kind, encode_batch(batch), batch.num_rows, on_result)

    def _submit(self, kind: FrameKind, payload: Any, rows: int, on_result: OnAccepted) -> None:
        def on_answer(answer: memoryview | TarryError) -> None:
            on_result(answer if isinstance(answer, TarryError) else decode_accepted(answer))

        if len(payload) > ASKED_BYTES_MAX:
            on_result(MessageTooLargeError(f"a batch of {len(payload)} bytes; allowed: {ASKED_BYTES_MAX}"))
            return
        link = self.link
        link.ask(kind, on_answer, payload)
        link.rows_in += rows
        link.batches_in += 1

    def find_keyed(self, topic: str, key: str) -> pa.RecordBatch | Outcome:
        kind, answer = self._control.ask(FrameKind.FIND_KEYED, encode_json([topic, key]))
        return decode_batch(answer, SCHEMA) if kind == FrameKind.ROWS else _outcome(answer)

    def replace_keyed(self, topic: str, key: str, seq: int, successor: pa.RecordBatch) -> Outcome:
        names = encode_json([topic, key, seq])
        _, answer = self._control.ask(FrameKind.REPLACE, numbered(len(names)), names, bytes(encode_batch(successor)))
        return _outcome(answer)

    # -- consuming -----------------------------------------------------------------------------------------------------

    def group(self, topic: str, name: str, *, start: str | None = None, broadcast: str | None = None) -> RemoteGroup:
        group = self._groups.find(topic, name) if broadcast is None else None
        return group or self._groups.ask(topic, name, create=True, start=start, broadcast=broadcast)

    def find_group(self, topic: str, name: str) -> RemoteGroup:
        return self._groups.find(topic, name) or self._groups.ask(topic, name)


def _outcome(answer: memoryview) -> Outcome:
    return Outcome(decode_json(bytes(answer))["outcome"])
