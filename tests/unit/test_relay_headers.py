"""What becomes of a record: each header, good and bad, and the rules of topics."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.delay import DELAY_MS_MAX, parse_levels
from tarry.base.errors import InvalidArgumentError
from tarry_relay.headers import (
    CANCEL,
    DELAY,
    DELAY_MS,
    DUE,
    DUE_MS,
    READ,
    SOURCE_OFFSET,
    TOPIC,
    WHEN,
    Decision,
    Header,
    RecordAction,
    TopicRule,
    decide,
)  # fmt: skip
from tarry_relay.rules import TopicRules
from tarry_relay.settings import RelaySettings

BORN_MS = 1_795_264_000_000
NOW_MS = BORN_MS + 700


def decided(headers: list[Header], *, delay_ms: int | None = None, **more: object) -> Decision:
    arguments = {
        "key": b"k",
        "tombstone": False,
        "timestamp_ms": BORN_MS,
        "now_ms": NOW_MS,
        "delay_ms_max": DELAY_MS_MAX,
    }
    return decide(TopicRule("orders-due", delay_ms), headers, **(arguments | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("headers", "due_ms"),
    [
        ([(DUE_MS, b"1795264001000")], 1_795_264_001_000),
        ([(DUE_MS, b" 946684800000 ")], 946_684_800_000),
        ([(DELAY_MS, b"1500")], BORN_MS + 1_500),
        ([(DELAY, b"1h30m")], BORN_MS + 5_400_000),
        ([(DELAY, b"0s")], BORN_MS),
        ([(DUE, b"2026-12-01T06:00:00Z")], 1_796_104_800_000),
        ([(DUE, b"2026-12-01T07:00:00.0001+01:00")], 1_796_104_800_001),
        ([(DUE, b"1795264001000")], 1_795_264_001_000),
    ],
)
def test_when(headers: list[Header], due_ms: int) -> None:
    decision = decided([("a", b"1"), *headers, ("a", None)])
    assert (decision.action, decision.due_ms, decision.target) == (RecordAction.AT, due_ms, "orders-due")
    assert list(decision.headers) == [("a", b"1"), ("a", None)]


def test_a_delay_counts_from_the_timestamp_and_without_one_from_the_batch() -> None:
    assert decided([(DELAY_MS, b"5")]).due_ms == BORN_MS + 5
    assert decided([(DELAY_MS, b"5")], timestamp_ms=None).due_ms == NOW_MS + 5


def test_without_headers_it_passes_or_has_the_topics_delay() -> None:
    assert decided([]) == Decision(RecordAction.PASS, (), "orders-due", BORN_MS)
    assert decided([], delay_ms=30_000).due_ms == BORN_MS + 30_000
    assert decided([(DELAY, b"1s")], delay_ms=30_000).due_ms == BORN_MS + 1_000
    elsewhere = decided([(TOPIC, b"other")], delay_ms=30_000)
    assert (elsewhere.action, elsewhere.target, elsewhere.due_ms) == (RecordAction.AT, "other", BORN_MS + 30_000)
    assert decided([(TOPIC, b"other")]).action == RecordAction.PASS


def test_what_another_relay_has_added_is_replaced() -> None:
    decision = decided([(SOURCE_OFFSET, b"7"), ("a", b"")])
    assert (decision.action, list(decision.headers)) == (RecordAction.PASS, [("a", b"")])


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("tarry-dealy", b"1s")], "'tarry-dealy' is unknown; allowed: tarry-cancel"),
        ([(DELAY, b"1s"), (DELAY, b"2s")], "'tarry-delay' is there twice"),
        ([(DELAY, b"1s"), (DUE_MS, b"7")], "tarry-due-ms and tarry-delay are both there"),
        ([(DELAY, b"30")], "not a duration: '30'"),
        ([(DELAY, b"\xff")], r"tarry-delay b'\xff' is no text"),
        ([(DELAY, None)], "not a duration: ''"),
        ([(DELAY_MS, b"-1")], "tarry-delay-ms '-1' is no number"),
        ([(DELAY_MS, b"1.5")], "tarry-delay-ms '1.5' is no number"),
        ([(DUE_MS, b"0")], "before 2000"),
        ([(DUE_MS, b"9" * 19)], "is no number"),
        ([(DUE_MS, b"9" * 18)], "is beyond the longest delay"),
        ([(DELAY, b"15000d")], "is beyond the longest delay"),
        ([(DUE, b"tomorrow")], "'tomorrow' is not an instant"),
        ([(DUE, b"2026-12-01T06:00:00")], "is not an instant; allowed: ISO 8601 with an offset"),
        ([(DUE, b"1969-12-31T23:59:59Z")], "is before 1970"),
        ([(TOPIC, b"a/b"), (DELAY, b"1s")], "tarry-topic 'a/b' is no topic name"),
        ([(TOPIC, b"..")], "is no topic name"),
        ([(CANCEL, b"k")], "has a value; allowed: a null value"),
    ],
)
def test_what_cannot_be_scheduled_is_dead_with_all_its_headers(headers: list[Header], reason: str) -> None:
    decision = decided([("a", b"1"), *headers])
    assert decision.action == RecordAction.DEAD
    assert reason in decision.reason
    assert list(decision.headers) == [("a", b"1"), *headers]


def test_cancel() -> None:
    assert decided([(CANCEL, b"")], tombstone=True) == Decision(RecordAction.CANCEL, [], key=b"k")
    assert decided([(CANCEL, None)], tombstone=True).key == b"k"
    assert decided([(CANCEL, b"other")], tombstone=True).key == b"other"
    assert decided([(CANCEL, b"")], tombstone=True, key=None).action == RecordAction.DEAD
    assert decided([(CANCEL, b""), (DELAY, b"1s")], tombstone=True).action == RecordAction.DEAD
    # A tombstone alone is the target's own affair.
    assert decided([], tombstone=True).action == RecordAction.PASS


values = st.one_of(st.none(), st.binary(max_size=30), st.integers(-10, 2**70).map(lambda n: b"%d" % n))
any_headers = st.lists(st.tuples(st.one_of(st.sampled_from([*READ, SOURCE_OFFSET]), st.text(max_size=12)), values))


@given(any_headers, st.booleans(), st.one_of(st.none(), st.binary(max_size=4)), st.one_of(st.none(), st.just(30_000)))
def test_any_record_has_one_answer(
    headers: list[Header], tombstone: bool, key: bytes | None, delay_ms: int | None
) -> None:
    decision = decided(headers, tombstone=tombstone, key=key, delay_ms=delay_ms)
    own = [h for h in headers if not h[0].startswith("tarry-")]
    assert list(decision.headers) == (headers if decision.action == RecordAction.DEAD else own)
    assert bool(decision.reason) == (decision.action == RecordAction.DEAD)
    if decision.action == RecordAction.AT:
        assert decision.due_ms - BORN_MS <= DELAY_MS_MAX
        assert delay_ms is not None or any(name in WHEN for name, _ in headers)
    # Decided from the record alone: when it is read again, it is the same.
    assert decided(headers, tombstone=tombstone, key=key, delay_ms=delay_ms, now_ms=NOW_MS + 10**9) == decision


def settings(**more: object) -> RelaySettings:
    return RelaySettings(kafka="localhost:9092", topics=r"(shop-.*|delay-.*|retry-.*)", store="s", **more)  # type: ignore[arg-type]


def test_targets_by_template_and_pattern() -> None:
    rules = TopicRules(settings(targets=(r"shop-(.*)=\1.out", "{topic}-due")))
    assert rules.of("shop-orders").target == "orders.out"
    assert rules.of("delay-x").target == "delay-x-due"
    with pytest.raises(InvalidArgumentError, match="no --target matches topic 'delay-x'"):
        TopicRules(settings(targets=("shop-.*=x",))).of("delay-x")
    with pytest.raises(InvalidArgumentError, match="allowed: another topic"):
        TopicRules(settings(targets=("{topic}",))).of("delay-x")
    with pytest.raises(InvalidArgumentError, match="no regular expression"):
        TopicRules(settings(targets=("(=x",)))


def test_delays_by_pattern() -> None:
    rules = TopicRules(settings(delays=("shop-slow=1h30m", "delay-level-<n>", "delay-<seconds>s", "retry-<duration>")))
    expected = {"shop-slow": 5_400_000, "delay-30s": 30_000, "retry-1h5m": 3_900_000, "shop-x": None, "retry-x": None}
    assert {topic: rules.of(topic).delay_ms for topic in expected} == expected
    assert [rules.of(f"delay-level-{n}").delay_ms for n in (1, 18)] == [
        parse_levels(settings().delay_levels)[n] for n in (0, 17)
    ]
    with pytest.raises(InvalidArgumentError, match="names delay level 19; allowed: 1 to 18"):
        rules.of("delay-level-19")
    for bad in ("delay-30s", "x=", "x=soon", "<n>-<n>"):
        with pytest.raises(InvalidArgumentError):
            TopicRules(settings(delays=(bad,)))


def test_sources_are_no_targets_and_nothing_of_the_relays_own() -> None:
    rules = TopicRules(RelaySettings(kafka="k", topics=".*", store="s", name="r"))
    topics = ["orders", "orders-due", "r-dead-letters", "r-deliver-marker", "__consumer_offsets", "mails"]
    assert rules.sources(topics) == ["mails", "orders"]


def test_a_topic_that_cannot_be_read_keeps_nobody_waiting() -> None:
    rules = TopicRules(settings(targets=("shop-.*=x",), delays=("delay-level-<n>",)))
    assert rules.sources(["shop-a", "delay-x", "delay-level-99"]) == ["shop-a"]
    with pytest.raises(InvalidArgumentError, match="delay-x"):
        rules.check(["shop-a", "delay-x"])


def test_settings_are_checked_and_travel() -> None:
    changed = settings(kafka_options=(("a", "b"),), delays=("x=1s",))
    assert RelaySettings.from_json(changed.to_json()) == changed
    assert changed.fingerprint() != settings().fingerprint()
    assert settings(shards=9).fingerprint() == settings().fingerprint()
    for bad in ({"shards": 0}, {"name": "a/b"}, {"guarantee": "maybe"}, {"timestamp": "never"}, {"near_ms": -1}):
        with pytest.raises(InvalidArgumentError, match="allowed"):
            settings(**bad)


assert datetime.fromtimestamp(1_796_104_800, UTC).isoformat() == "2026-12-01T06:00:00+00:00"
