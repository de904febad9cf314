"""Messages that are pushed to a real receiver: what it gets, what its answers do, and what stays of that."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tarry.api.consuming import ConsumerGroup
from tarry.api.push import origin_of
from tarry.base.errors import InvalidArgumentError, NotFoundError
from tarry.broker import Broker
from tests.push.conftest import MakeBroker
from tests.push.receiver import Got, Receiver, Reply
from tests.waiting import wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


def settled(broker: Broker, name: str = "s") -> bool:
    info = broker.push_info(name)
    return broker.group_info(info.topic, info.group).lag == 0 and info.in_flight == 0


def test_a_message_is_pushed_when_it_is_due_and_signed(broker: Broker) -> None:
    with Receiver() as receiver:
        made = broker.set_push("s", topic="t", url=receiver.url, secrets=[SECRET, OTHER], headers={"X-Shop": "7"})
        assert (made.secrets, made.secret, made.headers, made.group) == (2, None, ["X-Shop"], "push-s")
        receipt = broker.schedule(
            "t",
            b'{"n": 1}',
            delay="300ms",
            id="order-1",
            key="k\r\nInjected: yes",
            tag="späti",
            properties={"a": "1\n2", "content-type": "application/json"},
        )
        wait_until(lambda: settled(broker) and receiver.got)
        [got] = receiver.got
        assert got.body == b'{"n": 1}'
        assert got.at_ms >= receipt.due_ms
        headers = got.headers
        for secret in (SECRET, OTHER):
            Webhook(secret).verify(got.body, headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(OTHER).verify(got.body + b" ", headers)
        assert headers["content-type"] == "application/json"
        assert headers["x-tarry-topic"] == "t"
        assert headers["x-tarry-id"] == "order-1"
        assert headers["x-tarry-due-ms"] == str(receipt.due_ms)
        assert headers["x-tarry-key"] == "k%0D%0AInjected:%20yes"
        assert headers["x-tarry-tag"] == "sp%C3%A4ti"
        assert json.loads(headers["x-tarry-properties"]) == {"a": "1\n2", "content-type": "application/json"}
        assert headers["x-tarry-attempt"] == "1"
        assert headers["x-shop"] == "7"
        assert "injected" not in headers
        info = broker.push_info("s")
        assert (info.state, info.pushed, info.failed) == ("running", 1, 0)
        [attempt] = broker.push_attempts("s")
        assert (attempt.status, attempt.outcome, attempt.id, attempt.attempt) == (204, "pushed", "order-1", 1)
        assert attempt.webhook_id == headers["webhook-id"]


def test_a_failure_comes_again_with_the_same_id(broker: Broker) -> None:
    def behave(got: Got) -> Reply:
        return Reply(500, body=b"not today") if got.attempt < 3 else Reply(200, body=b"thanks")

    with Receiver(behave) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 10ms")
        broker.schedule("t", b"x", id="m")
        wait_until(lambda: settled(broker) and len(receiver.got) == 3)
        assert [got.attempt for got in receiver.got] == [1, 2, 3]
        assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
        shown = [(a.attempt, a.status, a.outcome, a.answer) for a in broker.push_attempts(id="m")]
        assert shown == [(3, 200, "pushed", "thanks"), (2, 500, "failed", "not today"), (1, 500, "failed", "not today")]
        assert [a.attempt for a in broker.push_attempts("s", failed=True, limit=1)] == [2]
        assert broker.push_attempts(id="another") == []


def test_tries_that_are_used_up_are_a_dead_letter(broker: Broker) -> None:
    with Receiver(lambda _: Reply(400)) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 1ms", tries=2)
        broker.schedule("t", b"x")
        wait_until(lambda: broker.group_info("t", "push-s").dead == 1)
        assert [got.attempt for got in receiver.got] == [1, 2]


def test_gone_pauses_and_to_resume_pushes_again(broker: Broker) -> None:
    with Receiver(lambda _: Reply(410)) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 1ms", tries=0)
        broker.schedule("t", b"x")
        wait_until(lambda: broker.push_info("s").paused)
        info = broker.push_info("s")
        assert (info.state, info.reason) == ("paused", "410: the receiver wants nothing more")
        assert len(receiver.got) == 1
        assert broker.push_attempts("s")[0].outcome == "gone"
        receiver.behave = lambda _: Reply(200)
        broker.resume_push("s")
        wait_until(lambda: settled(broker))
        assert broker.push_info("s").reason == ""


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_respected(broker: Broker, status: int) -> None:
    def behave(got: Got) -> Reply:
        return Reply(status, {"Retry-After": "1"}) if got.attempt == 1 else Reply()

    with Receiver(behave) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 1ms", concurrency=1)
        broker.schedule("t", b"x")
        wait_until(lambda: len(receiver.got) == 1 and broker.push_info("s").state == "waiting")
        broker.schedule("t", b"y")
        wait_until(lambda: len(receiver.got) >= 3)
        first, second, *_ = receiver.got
        assert second.at_ms >= first.at_ms + 999, "nothing of the subscription comes before"
        assert broker.push_attempts("s", failed=True)[0].outcome == "throttled"
        assert broker.push_info("s").failures_in_a_row == 0


def test_redirects_are_not_followed(broker: Broker) -> None:
    with Receiver() as elsewhere, Receiver(lambda _: Reply(307, {"Location": elsewhere.url})) as receiver:
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 1ms", tries=1)
        broker.schedule("t", b"x")
        wait_until(lambda: broker.group_info("t", "push-s").dead == 1)
        assert "redirects are not followed" in str(broker.push_info("s").error)
        assert not elsewhere.got


def test_a_restart_keeps_subscriptions_and_goes_on(make_broker: MakeBroker, tmp_path: Path) -> None:
    with Receiver(lambda _: Reply(500)) as receiver:
        broker = make_broker()
        broker.set_push("s", topic="t", url=receiver.url, retry="fixed 200ms", tries=0, per_second=99.5)
        broker.set_push("p", topic="t", url=receiver.url, headers={"Authorization": "Bearer secret"})
        broker.pause_push("p", "for now")
        broker.schedule("t", b"x")
        wait_until(lambda: receiver.got)
        path = tmp_path / "data" / "push.json"
        assert path.stat().st_mode & 0o777 == 0o600
        receiver.behave = lambda _: Reply()
        broker = make_broker()
        wait_until(lambda: settled(broker))
        assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
        assert [(i.name, i.paused, i.reason) for i in broker.push_subscriptions()] == [
            ("p", True, "for now"),
            ("s", False, ""),
        ]
        assert (broker.push_info("s").per_second, broker.push_info("p").headers) == (99.5, ["Authorization"])
        broker.delete_push("s")
        broker.delete_push("p", keep_group=True)
        assert [g.group for g in broker.groups("t")] == ["push-p"]
        assert broker.push_subscriptions() == []
        with pytest.raises(NotFoundError, match="no push subscription 's'"):
            broker.push_info("s")


def test_each_subscription_gets_all_messages_that_it_wants(broker: Broker) -> None:
    with Receiver() as one, Receiver() as two:
        broker.set_push("one", topic="t", url=one.url)
        broker.set_push("two", topic="t", url=two.url, filter="a")
        for n in range(40):
            broker.schedule("t", str(n).encode(), tag="a" if n % 2 else "b")
        wait_until(lambda: len(one.got) >= 40 and len(two.got) >= 20)
        wait_until(lambda: settled(broker, "one") and settled(broker, "two"))
        assert Counter(one.bodies) == Counter(str(n).encode() for n in range(40))
        assert Counter(two.bodies) == Counter(str(n).encode() for n in range(1, 40, 2))


def test_a_test_sends_one_request_and_takes_nothing(broker: Broker) -> None:
    with Receiver(lambda _: Reply(202, body=b"hello")) as receiver:
        made = broker.set_push("s", topic="t", url=receiver.url)
        broker.pause_push("s")
        attempt = broker.test_push("s")
        assert (attempt.status, attempt.outcome, attempt.answer, attempt.attempt) == (202, "pushed", "hello", 0)
        [got] = receiver.got
        assert got.headers["x-tarry-test"] == "true"
        assert made.secret is not None
        Webhook(made.secret).verify(got.body, got.headers)
        assert broker.push_info("s").paused


def test_secrets_are_shown_once_and_rotate(broker: Broker) -> None:
    with Receiver() as receiver:
        made = broker.set_push("s", topic="t", url=receiver.url + "?token=hidden", headers={"Authorization": "hidden"})
        first = made.secret
        assert first is not None and first.startswith("whsec_")
        changed = broker.set_push("s", concurrency=3)
        assert changed.secret is None
        rotated = broker.set_push("s", rotate=True)
        assert rotated.secret not in (None, first)
        for shown in (changed, broker.push_info("s"), *broker.push_subscriptions()):
            assert "hidden" not in repr(shown) and first not in repr(shown) and str(rotated.secret) not in repr(shown)
            assert shown.url.endswith("/hook?…")
        assert "hidden" not in repr(broker.push.all()) and first not in repr(broker.push.all())
        broker.schedule("t", b"{}")
        wait_until(lambda: receiver.got)
        [got] = receiver.got
        assert got.path == "/hook?token=hidden"
        for secret in (first, rotated.secret):
            Webhook(str(secret)).verify(got.body, got.headers)


def test_another_receiver_is_not_shown_what_the_former_one_was(broker: Broker) -> None:
    with Receiver() as former, Receiver() as other:
        kept = {"secrets": [SECRET], "headers": {"Authorization": "Bearer PASSWORD"}}
        broker.set_push("s", topic="t", url=former.url, **kept)  # type: ignore[arg-type]
        same = broker.set_push("s", url=former.url + "/elsewhere?a=b")
        assert (same.secrets, same.headers, same.secret) == (1, ["Authorization"], None)
        moved = broker.set_push("s", url=other.url)
        assert (moved.secrets, moved.headers) == (1, [])
        assert moved.secret not in (None, SECRET)
        broker.test_push("s")
        [got] = other.got
        assert "authorization" not in {name.lower() for name in got.headers}
        Webhook(str(moved.secret)).verify(got.body, got.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(got.body, got.headers)
        turned = broker.set_push("s", url=former.url, rotate=True)
        assert turned.secrets == 1
        assert turned.secret not in (None, moved.secret)
        given = broker.set_push("s", url=other.url, **kept)  # type: ignore[arg-type]
        assert (given.secrets, given.headers, given.secret) == (1, ["Authorization"], None)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.example/x", "https://A.example:443/y?z", True),
        ("https://a.example/x", "http://a.example/x", False),
        ("http://a.example/x", "http://a.example:8080/x", False),
        ("http://a.example/", "http://b.example/", False),
    ],
)
def test_who_receives_is_scheme_host_and_port(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same


def test_what_comes_after_a_change_is_pushed_as_changed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    # A delivery begins with what was read before it waited for its group: a change may come in the meantime.
    begun, may_begin = threading.Event(), threading.Event()
    group = broker.group

    def slow_group(topic: str, name: str) -> ConsumerGroup:
        begun.set()
        assert may_begin.wait(30)
        return group(topic, name)

    with Receiver() as former, Receiver() as receiver:
        monkeypatch.setattr(broker, "group", slow_group)
        broker.set_push("s", topic="t", url=former.url, secrets=[SECRET])
        assert begun.wait(30)
        broker.set_push("s", url=receiver.url, secrets=[OTHER])
        broker.schedule("t", b"{}")
        wait_until(lambda: broker.group_info("t", "push-s").lag == 1)
        may_begin.set()
        wait_until(lambda: settled(broker) and receiver.got)
        [got] = receiver.got
        Webhook(OTHER).verify(got.body, got.headers)
        assert former.got == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "ftp://example.com/"),
        ("url", "http://user:pw@example.com/"),
        ("url", "http:///path"),
        ("url", "http://example.com:0/"),
        ("url", "http://example.com:99999/"),
        ("url", "http://example.com/a b"),
        ("url", "http://example.com/\r\nX: y"),
        ("url", "http://example.com\\@127.0.0.1/"),
        ("url", "http://example.com/#x"),
        ("url", "http://[::1"),
        ("url", "http://10.0.0.1/"),
        ("url", "http://169.254.169.254/latest"),
        ("url", "http://[::ffff:10.0.0.1]/"),
        ("url", "http://2130706433/"),
        ("secrets", []),
        ("secrets", ["secret"]),
        ("secrets", ["whsec_AAAA"]),
        ("secrets", ["whsec_!!!!"]),
        ("headers", {"Host": "x"}),
        ("headers", {"webhook-id": "x"}),
        ("headers", {"X-Tarry-Key": "x"}),
        ("headers", {"X": "a\r\nB: c"}),
        ("headers", {"X Y": "a"}),
        ("headers", {"X:": "a"}),
        ("headers", {"X": "ü"}),
        ("headers", {"X": "a", "x": "b"}),
        ("concurrency", 0),
        ("concurrency", 257),
        ("concurrency", True),
        ("per_second", -1.0),
        ("per_second", float("nan")),
        ("timeout_ms", 99),
        ("breaker_failures", -1),
        ("retry", "sometimes"),
        ("filter", "sql: a ="),
        ("group", "tarry.x"),
        ("topic", "bad topic"),
    ],
)
def test_what_is_not_allowed(common: Broker, field: str, value: object) -> None:
    good = {"topic": "t", "url": "https://example.com/hook", "secrets": [SECRET]}
    with pytest.raises(InvalidArgumentError, match="allowed") as refusal:
        common.set_push("s", **{**good, field: value})  # type: ignore[arg-type]
    assert "pw" not in str(refusal.value) and SECRET not in str(refusal.value)
    assert common.push_subscriptions() == []


def test_names_groups_and_what_cannot_change(broker: Broker) -> None:
    broker.set_push("s", topic="t", url="https://example.com/", group="g")
    for name, fields in [
        ("", {"topic": "t", "url": "https://example.com/"}),
        ("a/b", {"topic": "t", "url": "https://example.com/"}),
        ("new", {"topic": "t"}),
        ("new", {"url": "https://example.com/"}),
        ("new", {"topic": "t", "url": "https://example.com/", "group": "g"}),
        ("s", {"topic": "u"}),
        ("s", {"group": "h"}),
        ("s", {"rotate": True, "secrets": [SECRET]}),
    ]:
        with pytest.raises(InvalidArgumentError):
            broker.set_push(name, **fields)  # type: ignore[arg-type]
    assert [i.name for i in broker.push_subscriptions()] == ["s"]


def test_a_new_subscription_without_a_url_is_refused(broker: Broker) -> None:
    told = "subscription 's' is new, and topic is 'https://a.example', and url None; allowed: both, a topic first"
    with pytest.raises(InvalidArgumentError, match=told):
        broker.set_push("s", topic="https://a.example")
