"""The parts of the pusher by themselves: addresses, the circuit breaker, the pace, what answers mean, headers."""

from __future__ import annotations

import json
import string
from datetime import UTC, datetime
from email.utils import format_datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from tarry.api.push import PushSubscription, new_secret
from tarry.base.addresses import AddressPolicy, parse_networks, parse_ports
from tarry.base.errors import InvalidArgumentError
from tarry.base.token_bucket import TokenBucket
from tarry.fronts.push.breaker import WAIT_S_MAX, WAIT_S_MIN, CircuitBreaker
from tarry.fronts.push.figures import ATTEMPTS_MAX, AttemptLog
from tarry.fronts.push.message import PushMessage
from tarry.fronts.push.request import RequestMaker, encoded
from tarry.fronts.push.verdict import RETRY_AFTER_MS_MAX, PushOutcome, retry_after_ms, verdict_of
from tarry.outbound.connection import HttpAnswer
from tests.push.attempts import attempt

NOW_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.1.2.3", "127.0.0.1", "127.8.9.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "224.0.0.1"),
        *("100.100.100.200", "168.63.129.16", "192.0.2.1", "198.18.0.1", "203.0.113.9", "240.0.0.1", "255.255.255.255"),
        *("192.0.0.192", "192.88.99.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1"),
        *("fec0::1", "2001:db8::1", "3fff::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::10.0.0.1"),
        *("::ffff:169.254.169.254",),
        *("2002:7f00:0001::", "2002:a9fe:a9fe::1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "::127.0.0.1"),
        *("example.com", "", "0x7f.1", "127.1", "1.2.3.4.5"),
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert AddressPolicy().refusal(address) is not None


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "172.15.0.1"]
)
def test_public_addresses_are_not(address: str) -> None:
    assert AddressPolicy().refusal(address) is None


def test_what_a_setting_allows_and_nothing_else() -> None:
    policy = AddressPolicy.of("10.0.0.0/8, fd00::/8", "80 8000-9000")
    assert [policy.refusal(a) for a in ("10.9.9.9", "fd12::1", "::ffff:10.0.0.1")] == [None, None, None]
    assert all(policy.refusal(a) for a in ("127.0.0.1", "192.168.0.1", "fe80::1", "::ffff:127.0.0.1"))
    assert [policy.port_refusal(p) is None for p in (80, 81, 7999, 8000, 9000, 9001)] == [1, 0, 0, 1, 1, 0]
    anywhere = AddressPolicy.of("on", "all")
    assert [anywhere.refusal(a) for a in ("127.0.0.1", "::1", "169.254.169.254")] == [None, None, None]
    assert anywhere.port_refusal(25) is None
    assert parse_networks("off") == ()


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10/8", "here", "on off", "300.0.0.0/8"])
def test_networks_that_are_none(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        parse_networks(text)


@pytest.mark.parametrize("text", ["0", "65536", "9-8", "80-", "-80", "http", "+80", "8 all"])
def test_ports_that_are_none(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        parse_ports(text)


def test_the_circuit_breaker() -> None:
    breaker = CircuitBreaker(3)
    for _ in range(2):
        breaker.on_failure(100.0)
    breaker.on_success()
    for _ in range(2):
        breaker.on_failure(100.0)
    assert breaker.open_until_s is None, "not in a row"
    breaker.on_failure(100.0)
    assert breaker.open_until_s is not None
    assert 100 < breaker.open_until_s <= 100 + WAIT_S_MIN
    breaker.on_failure(100.1)  # one that was under way
    assert breaker.opened == 1
    breaker.look(100.1)
    assert not breaker.is_half_open
    now_s, waits = 100.0, []
    for _ in range(12):
        now_s = breaker.open_until_s
        breaker.look(now_s)
        assert (breaker.is_half_open, breaker.open_until_s) == (True, None)
        breaker.on_failure(now_s)
        assert breaker.open_until_s is not None
        waits.append(breaker.open_until_s - now_s)
    assert waits[1] > waits[0]
    assert max(waits) <= WAIT_S_MAX
    breaker.look(breaker.open_until_s)
    breaker.on_success()
    assert (breaker.is_half_open, breaker.open_until_s, breaker.failures_in_a_row) == (False, None, 0)


def test_a_breaker_that_never_opens() -> None:
    breaker = CircuitBreaker(0)
    for _ in range(1000):
        breaker.on_failure(1.0)
    assert breaker.open_until_s is None


@given(st.floats(0.01, 5000), st.lists(st.floats(0, 2), max_size=50))
def test_a_bucket_gives_no_more_than_its_rate(per_second: float, pauses: list[float]) -> None:
    bucket, now_s, taken = TokenBucket(per_second, 0.0), 0.0, 0
    for pause in pauses:
        now_s += pause
        count = bucket.available(now_s)
        assert count is not None
        bucket.take(count)
        taken += count
    assert taken <= now_s * per_second + max(1.0, per_second * 0.1) + 0.001
    wait_s = bucket.wait_s()
    assert bucket.available(now_s + wait_s + 1e-9) or wait_s == 0


def test_a_bucket_without_a_limit() -> None:
    bucket = TokenBucket(0, 0.0)
    bucket.take(1000)
    assert (bucket.available(0.0), bucket.wait_s()) == (None, 0.0)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "pushed"),
        (204, "pushed"),
        (299, "pushed"),
        (100, "failed"),
        (301, "failed"),
        (400, "failed"),
        (410, "gone"),
    ],
)
def test_what_answers_mean(status: int, outcome: str) -> None:
    assert verdict_of(HttpAnswer(status), NOW_MS).outcome == outcome
    assert verdict_of(HttpAnswer(None, "no answer"), NOW_MS).outcome is PushOutcome.FAILED


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("0", 0),
        (" 120 ", 120_000),
        ("99999999999", RETRY_AFTER_MS_MAX),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("٣", None),
        ("9" * 5000, None),
        (format_datetime(datetime.fromtimestamp(NOW_MS // 1000 + 90, UTC), usegmt=True), 90_000),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_MS_MAX),
        ("Thu, 99 Foo 2026", None),
    ],
)
def test_retry_after(text: str, expected_ms: int | None) -> None:
    assert retry_after_ms(text, NOW_MS) == expected_ms
    throttled = verdict_of(HttpAnswer(503, retry_after=text), NOW_MS)
    assert (throttled.outcome is PushOutcome.THROTTLED) == (expected_ms is not None)
    assert verdict_of(HttpAnswer(500, retry_after=text), NOW_MS).outcome is PushOutcome.FAILED


def message(**fields: object) -> PushMessage:
    given: dict[str, object] = {
        **dict.fromkeys(("key", "tag")),
        **dict.fromkeys(("seq", "offset", "lease", "attempt"), 1),
        **dict.fromkeys(("due_ms", "born_ms"), NOW_MS),
        **dict.fromkeys(("topic", "id"), "t"),
        "properties": [],
        "body": b"x",
    }
    return PushMessage(**{**given, **fields})  # type: ignore[arg-type]


def maker(**fields: object) -> RequestMaker:
    given: dict[str, object] = {"name": "s", "topic": "t", "group": "g", "url": "https://example.com"}
    return RequestMaker(PushSubscription(**{**given, "secrets": (new_secret(),), **fields}))  # type: ignore[arg-type]


@given(st.text(), st.text(), st.text(), st.dictionaries(st.text(), st.text(), max_size=5), st.text())
def test_whatever_is_in_a_message_headers_are_plain(
    id: str, key: str, tag: str, properties: dict[str, str], content_type: str
) -> None:
    pairs = [*properties.items(), ("content-type", content_type)]
    # Lone surrogates are in no message.
    try:
        pa.array([id, key, tag, *properties, *properties.values(), content_type])
    except UnicodeEncodeError:
        return
    headers = maker().request(message(id=id, key=key, tag=tag, properties=pairs), NOW_MS).headers
    allowed = set(string.printable) - set("\r\n\t\x0b\x0c")
    for name, value in headers.items():
        assert set(value) <= allowed, name
        assert value == value.strip(), name
    if "x-tarry-properties" in headers:
        assert json.loads(headers["x-tarry-properties"]) == dict(pairs)


@pytest.mark.parametrize("later", ["", "-x\r\nhost: other"])
def test_a_trace_goes_on_in_a_header(later: str) -> None:
    parent = f"{'cc' if later else '00'}-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01{later}"
    headers = maker().request(message(properties=[("traceparent", parent)]), NOW_MS).headers
    assert headers.get("traceparent") == (None if later else parent)


def test_properties_that_are_too_long_for_a_header() -> None:
    headers = maker().request(message(properties=[("a", "x" * 5000)]), NOW_MS).headers
    assert "x-tarry-properties" not in headers
    assert int(headers["x-tarry-properties-omitted"]) > 5000


def test_texts_that_need_no_code_stay() -> None:
    assert [encoded(text) for text in ("a b/c?d", " a", "100%", "")] == ["a b/c?d", "%20a", "100%25", ""]


def test_two_occurrences_of_a_series_have_two_ids_and_two_tries_have_one() -> None:
    assert message(seq=7).webhook_id == message(seq=7, attempt=2).webhook_id
    assert message(seq=7).webhook_id != message(seq=8).webhook_id
    assert message(born_ms=1).webhook_id != message(born_ms=2).webhook_id


def test_signatures_are_what_the_reference_makes() -> None:
    secret = new_secret()
    body = b'{"a": "\xc3\xbc"}'
    headers = maker(secrets=(secret,)).request(message(body=body), NOW_MS).headers
    expected = Webhook(secret).sign(
        headers["webhook-id"], datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC), body.decode()
    )
    assert headers["webhook-signature"] == expected


def test_the_log_of_attempts_is_bounded_and_failures_outlast_successes() -> None:
    log = AttemptLog()
    log.add(attempt("s", "bad", 0, outcome="failed"), b"why")
    for n in range(3 * ATTEMPTS_MAX):
        log.add(attempt("s", str(n), n + 1), b"fine")
    found = log.find("s", None, False, 10_000)
    assert len(found) == ATTEMPTS_MAX + 1
    assert (found[0].id, found[-1].id, found[-1].answer) == (str(3 * ATTEMPTS_MAX - 1), "bad", "why")
    assert [a.id for a in log.find(None, None, True, 10)] == ["bad"]
    assert [a.id for a in log.find(None, "wh-bad", False, 10)] == ["bad"]
    assert log.find("other", None, False, 10) == []
    log.keep(["other"])
    assert log.find(None, None, False, 10) == []


def test_answers_that_are_kept_are_bounded_in_all() -> None:
    log = AttemptLog()
    for n in range(100):
        for at_ms in range(ATTEMPTS_MAX):
            log.add(attempt(f"s{n}", "m", at_ms), b"x" * 2048)
    kept = sum(len(a.answer) for a in log.find(None, None, False, 1 << 20))
    assert 15 << 20 < kept <= 16 << 20
    log.keep([])
    log.add(attempt("s", "m", 1), b"there is room again")
    assert log.find("s", None, False, 1)[0].answer == "there is room again"
