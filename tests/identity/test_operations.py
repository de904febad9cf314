"""Every operation says what right it needs, and a broker that is seen by somebody asks for it."""

from __future__ import annotations

import queue
import threading
from typing import Any, get_args

import pyarrow as pa
import pytest
from tests.identity.conftest import Known
from tests.waiting import wait_until

from tarry.api import operations as ops
from tarry.api.needs import Listed, Needs, Nothing, OnBroker, OnFound, OnPushSubscription, OnTopic, Right
from tarry.api.operation import Operation
from tarry.api.operations import OPERATIONS
from tarry.api.operations.delivery import Subscribe
from tarry.api.operations.jobs import StageJob
from tarry.api.outcome import Outcome
from tarry.base.errors import ForbiddenError, InvalidArgumentError, UnauthenticatedError
from tarry.broker.operations import found_handlers
from tarry.identity.authenticator import Authenticator
from tarry.identity.seen import SeenBroker
from tarry.message.receipt import id_of

FREE = {ops.Ping, ops.WhoAmI, ops.CheckAccess, ops.GetHandles, ops.GetClock}
"""They tell nothing of a topic: a handle is looked at where it is used."""
VALUES: dict[str, Any] = {
    "topic": "secret", "group": "g", "name": "p", "handle": None, "key": "k", "keys": ["k"], "identity": "billing",
    "leases": [1], "offsets": [0], "seqs": [1], "due_ms": [1], "to": "latest", "status": {}, "files": [],
    "job": "j", "token": "t", "id": "i", "unit": "hour", "topics": {}, "place": "backups",
}  # fmt: skip


@pytest.mark.parametrize("kind", [*OPERATIONS, Subscribe, StageJob], ids=lambda kind: kind.__name__)
def test_each_operation_needs_something(kind: type[Operation[Any]]) -> None:
    assert isinstance(kind.needs, get_args(Needs))
    assert isinstance(kind.needs, Nothing) == (kind in FREE)
    fields = kind.wire_fields() or {}
    if isinstance(kind.needs, OnTopic | Listed) and kind not in (ops.GetStatus, ops.GetOverview, ops.GetPending):
        assert "topic" in fields or "topics" in fields
    if isinstance(kind.needs, OnPushSubscription):
        assert "name" in fields
    if isinstance(kind.needs, OnBroker):
        assert kind.needs.right not in (Right.PRODUCE, Right.CONSUME, Right.LOOK, Right.BROWSE, Right.MANAGE)


def test_what_is_found_has_a_handler_that_asks(known: Known) -> None:
    found = {k for k in OPERATIONS if isinstance(k.needs, OnFound | OnPushSubscription)}
    assert set(found_handlers(known.broker.components)) == found


def billing(known: Known) -> SeenBroker:
    return SeenBroker(known.broker, Authenticator(known.broker).by_token(known.billing))


def requests() -> list[Operation[Any]]:
    """One of each operation that is about a topic, a subscription or the broker, for what billing may not do."""
    made: list[Operation[Any]] = []
    for kind in OPERATIONS:
        if isinstance(kind.needs, Nothing | OnFound | Listed) or kind is ops.GetPushSubscription:
            continue  # what is found and forbidden looks like what is not there: test_push_rights
        if kind in BY_HAND:
            made.append(BY_HAND[kind])
            continue
        fields = kind.wire_fields() or {}
        needed = {name for name, (_, default) in fields.items() if default is ... or name == "topic"}
        made.append(kind(**{name: VALUES.get(name, 1) for name in needed}))
    return made


BY_HAND: dict[Any, Operation[Any]] = {
    ops.SetGroup: ops.SetGroup.of("secret", "g", tries=3),
    ops.SetTopic: ops.SetTopic.of("secret", late="drop"),
    ops.SetPipelineStatus: ops.SetPipelineStatus({}),
}


@pytest.mark.parametrize("request_", requests(), ids=lambda made: type(made).__name__)
def test_what_is_not_granted_is_refused_before_anything_is_done(common: Known, request_: Operation[Any]) -> None:
    with pytest.raises(ForbiddenError, match="billing has not the right"):
        billing(common).call(request_)


def test_what_a_producer_and_a_consumer_may(known: Known) -> None:
    seen = billing(known)
    receipt = known.broker.schedule("orders.a", b"x", delay=60)
    other = known.broker.schedule("secret", b"x", delay=60)
    made_up = known.broker.call(ops.GetHandles([other.seq + 1000], [other.due_ms]))[0]
    for handle, due_ms in ((other.handle, other.due_ms), (made_up, other.due_ms)):  # what is there, and what is not
        assert seen.call(ops.Cancel([handle])) == [Outcome.UNKNOWN]
        assert seen.call(ops.Reschedule.of(handle, delay=1)).outcome is Outcome.UNKNOWN
        assert seen.call(ops.GetMessage(other.seq, due_ms)).num_rows == 0
        found = seen.call(ops.GetHistory(handle))
        assert (found.events, len(found.unknown)) == ([], 1)
        assert "Nothing is known of it" in found.unknown[0]
    found = seen.call(ops.GetHistory(id_of(other.seq)))
    assert (found.events, found.unknown) == ([], seen.call(ops.GetHistory(id_of(other.seq + 1000))).unknown)
    assert seen.call(ops.GetHistory(receipt.handle)).events
    assert {each.topic for each in known.broker.pending() if each.pending} == {"orders.a", "secret"}
    assert [each.topic for each in seen.call(ops.GetPending())] == ["orders.a"]
    assert seen.call(ops.GetQueues()) == {}
    assert seen.call(ops.Cancel([other.handle, receipt.handle])) == [Outcome.UNKNOWN, Outcome.DONE]


def test_a_history_has_the_groups_that_one_may_look_at(known: Known) -> None:
    seen = billing(known)
    known.broker.set_identity("billing", ["consume orders.* group:billing"])
    seen = billing(known)
    for group in ("auditors", "billing"):
        known.broker.set_group("orders.a", group)
    receipt = known.broker.schedule("orders.a", b"x", delay=0)
    wait_until(lambda: known.broker.peek("orders.a").num_rows)
    events = seen.call(ops.GetHistory(receipt.handle)).events
    assert [each.details["group"] for each in events if each.event == "group"] == ["billing"]


def test_lists_of_all_topics_have_the_brokers_own_for_administrators_alone(known: Known) -> None:
    done: queue.Queue[Any] = queue.Queue()
    batch = pa.record_batch({"topic": ["tarry.halves", "orders.a"], "body": [b"half"] * 2, "delay_ms": [60_000] * 2})
    known.broker.submit(batch, done.put, internal=True)
    assert done.get(timeout=20).count == 2
    known.broker.set_identity("billing", ["browse *", "look *"])
    some, admin = billing(known), SeenBroker(known.broker, Authenticator(known.broker).by_token(known.admin))
    for seen, topics in ((some, ["orders.a"]), (admin, ["orders.a", "tarry.halves"])):
        assert [each.topic for each in seen.call(ops.GetPending())] == topics
        assert sorted(seen.call(ops.ListPending()).rows.column("topic").to_pylist()) == topics
        assert [g.topic for g in seen.call(ops.ListGroups())] == []
    known.broker.set_identity("billing", ["admin", "deny browse orders.cards"])
    assert billing(known).call(ops.GetPending())


def test_messages_of_the_brokers_own_topics_are_nobodys(known: Known) -> None:
    """Not even an administrator's: what fronts keep there, they change by key."""
    done: queue.Queue[Any] = queue.Queue()
    batch = pa.record_batch({"topic": ["tarry.halves"], "body": [b"half"], "delay_ms": [60_000]})
    known.broker.submit(batch, done.put, internal=True)
    accepted = done.get(timeout=20)
    [row] = known.broker.call(ops.ListPending(topic="tarry.halves")).rows.to_pylist()
    [handle] = known.broker.call(ops.GetHandles([row["seq"]], [row["due_ms"]]))
    assert accepted.count == 1
    known.broker.set_identity("billing", ["produce *", "browse *", "manage *", "produce tarry.*"])
    some, admin = billing(known), SeenBroker(known.broker, Authenticator(known.broker).by_token(known.admin))
    assert some.call(ops.Cancel([handle])) == [Outcome.UNKNOWN]
    assert some.call(ops.Reschedule.of(handle, delay=1)).outcome is Outcome.UNKNOWN
    for request in (ops.ListPending(topic="tarry.halves"), ops.ListDeadLetters("tarry.halves", "checks")):
        with pytest.raises(ForbiddenError):
            some.call(request)
    for broker in (admin, known.broker):
        for change in (ops.Cancel([handle]), ops.Reschedule.of(handle, delay=1)):
            with pytest.raises(InvalidArgumentError, match="Tarry's own"):
                broker.call(change)


def rows(*topics: str) -> pa.RecordBatch:
    return pa.record_batch({"topic": list(topics), "body": [b""] * len(topics), "delay_ms": [60_000] * len(topics)})


def test_a_batch_is_refused_for_one_topic(known: Known) -> None:
    seen, done = billing(known), threading.Event()
    for topics in (("orders.a", "secret"), ("orders.cards",), ("orders",)):
        with pytest.raises(ForbiddenError, match="produce on topic"):
            seen.submit(rows(*topics), lambda _: None)
    seen.submit(rows("orders.a", "orders.b"), lambda _: done.set())
    assert done.wait(10)
    with pytest.raises(ForbiddenError, match="with group 'other'"):
        seen.group("orders.a", "other")
    assert seen.group("orders.a", "billing").name == "billing"
    assert [each.group for each in seen.call(ops.ListGroups())] == ["billing"]


def test_who_somebody_is(known: Known) -> None:
    seen = billing(known)
    who = seen.call(ops.WhoAmI())
    assert (who.identity, who.grants[0]) == ("billing", "produce orders.*")
    assert seen.call(ops.CheckAccess("produce", "orders.a")).allowed
    assert not seen.call(ops.CheckAccess("produce", "orders.cards")).allowed
    assert not seen.call(ops.CheckAccess("produce")).allowed
    with pytest.raises(ForbiddenError, match="right admin"):
        seen.call(ops.CheckAccess("produce", "a", identity="admin"))
    assert known.broker.whoami().identity == "local"
    assert not known.broker.check_access("produce", "b", identity="billing").allowed


def test_tokens_that_are_none(known: Known) -> None:
    authenticator = Authenticator(known.broker)
    for token, reason in (
        (None, "no token was shown"),
        ("", "mistyped"),
        (known.admin[:-1], "mistyped"),
        ("tarry_" + "0" * 38, "mistyped"),
        ("é" * 44, "mistyped"),
    ):
        with pytest.raises(UnauthenticatedError, match=reason):
            authenticator.by_token(token)
    known.broker.delete_identity("billing")
    with pytest.raises(UnauthenticatedError, match="is not known"):
        authenticator.by_token(known.billing)
