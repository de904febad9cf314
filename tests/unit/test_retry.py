"""Back-off policies: what each text means, that it comes back as it went, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.api.retry import STEPS_MAX, RetryPolicy, parse_retry
from tarry.base.delay import DELAY_MS_MAX, parse_duration_ms
from tarry.base.errors import InvalidArgumentError

S, M, H = 1000, 60_000, 3_600_000
ROCKETMQ = [10 * S, 30 * S, *(n * M for n in range(1, 11)), 20 * M, 30 * M, H, 2 * H]


def delays(text: str, *attempts: int, seed: int = 1) -> list[int]:
    found = parse_retry(text).delays_ms(np.array(attempts, np.int32), np.random.default_rng(seed))
    assert found.dtype == np.int64
    return found.tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fixed 1s", [S, S, S, S, S]),
        ("fixed 0s", [0, 0, 0, 0, 0]),
        ("exponential 1s max 1h", [S, 2 * S, 4 * S, 8 * S, 16 * S]),
        ("exponential 1s max 5s", [S, 2 * S, 4 * S, 5 * S, 5 * S]),
        ("exponential 100ms max 1h factor 10", [100, S, 10 * S, 100 * S, 1000 * S]),
        ("exponential 1s max 1h factor 1.5", [1000, 1500, 2250, 3375, 5062]),
        ("exponential 1s max 1s factor 1", [S, S, S, S, S]),
        ("list 10s 30s 1m", [10 * S, 30 * S, M, M, M]),
        ("list 1m 5s", [M, 5 * S, 5 * S, 5 * S, 5 * S]),
    ],
)
def test_what_a_policy_means(text: str, expected: list[int]) -> None:
    assert delays(text, 1, 2, 3, 4, 5) == expected


def test_rocketmq_has_its_sixteen_steps() -> None:
    assert delays("rocketmq", *range(1, 18)) == [*ROCKETMQ, 2 * H]
    assert parse_retry("rocketmq") == parse_retry("list 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


@pytest.mark.parametrize("text", ["exponential 1s max 1h", "exponential 1ms max 40w factor 1000 jitter 0"])
def test_no_attempt_overflows(text: str) -> None:
    most = parse_retry(text).max_ms
    assert delays(text, 2, 1000, 10**6, 2**31 - 1)[1:] == [most, most, most]


def test_an_attempt_below_the_first_counts_as_the_first() -> None:
    assert delays("exponential 4s max 1h", 0, -(2**31)) == delays("list 4s 1m", 0, -1) == [4 * S, 4 * S]


def test_rows_are_independent_and_none_are_no_rows() -> None:
    assert delays("exponential 1s max 1h", 3, 1, 2) == [4 * S, S, 2 * S]
    assert delays("fixed 1s jitter 0.5") == []


@pytest.mark.parametrize("text", ["fixed 10s jitter 0.2", "exponential 10s max 10s jitter 0.2", "list 10s jitter 0.2"])
def test_jitter_takes_off_a_uniform_part_and_never_adds(text: str) -> None:
    found = np.array(delays(text, *[5] * 20_000))
    assert found.min() >= 8 * S and found.max() <= 10 * S
    shares = np.histogram(found, bins=10, range=(8 * S, 10 * S))[0] / len(found)
    assert np.abs(shares - 0.1).max() < 0.02
    assert delays(text, 1, 1, 1, seed=7) == delays(text, 1, 1, 1, seed=7) != delays(text, 1, 1, 1, seed=8)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("fixed 1s", "fixed 1s"),
        ("  fixed\t90s ", "fixed 1m30s"),
        ("fixed 0ms", "fixed 0s"),
        ("exponential 1s max 60m factor 2 jitter 0", "exponential 1s max 1h"),
        ("exponential 1s jitter 0.20 factor 1.50 max 7d", "exponential 1s max 1w factor 1.5 jitter 0.2"),
        ("list 10s 1.5s 1ms jitter 1", "list 10s 1s500ms 1ms jitter 1"),
        ("rocketmq jitter 0.0001", "list 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h jitter 0.0001"),
    ],
)
def test_the_canonical_text(text: str, canonical: str) -> None:
    assert str(parse_retry(text)) == canonical
    assert parse_retry(canonical) == parse_retry(text)


durations = st.integers(1, DELAY_MS_MAX)
hundredths = st.integers(0, 10_000).map(lambda n: n / 10_000)


@given(
    st.one_of(
        st.builds(lambda d, j: RetryPolicy("fixed", (d,), d, jitter=j), durations, hundredths),
        st.builds(
            lambda d, f, j: RetryPolicy("exponential", (min(d),), max(d), f, j),
            st.tuples(durations, durations),
            st.integers(10_000, 10_000_000).map(lambda n: n / 10_000),
            hundredths,
        ),
        st.builds(
            lambda d, j: RetryPolicy("list", tuple(d), max(d), jitter=j),
            st.lists(durations, min_size=1, max_size=STEPS_MAX),
            hundredths,
        ),
    ),
    st.lists(st.integers(1, 2**31 - 1)),
)
def test_every_policy_comes_back_from_its_text_and_keeps_its_bounds(policy: RetryPolicy, attempts: list[int]) -> None:
    assert parse_retry(str(policy)) == policy
    found = policy.delays_ms(np.array(attempts, np.int32), np.random.default_rng(0))
    assert np.all(found <= policy.max_ms)
    assert np.all(found >= np.floor(min(policy.steps_ms) * (1 - policy.jitter)) - 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "retry policy ''; allowed: 'fixed 1s'"),
        ("   ", "allowed: 'fixed 1s'"),
        ("1s", "retry policy '1s'; allowed"),
        ("linear 1s", "retry policy 'linear 1s'; allowed"),
        ("Fixed 1s", "allowed"),
        ("fixed", "one delay is needed, 0 are given"),
        ("fixed 1s 2s", "one delay is needed, 2 are given"),
        ("fixed 1", "not a duration: '1'"),
        ("fixed -1s", "not a duration: '-1s'"),
        ("fixed 1s max 1h", "not a duration: 'max'"),
        ("fixed 1s jitter", "jitter is ''"),
        ("fixed 1s jitter 1.1", "jitter is '1.1'; a number from 0 to 1 "),
        ("fixed 1s jitter nan", "jitter is 'nan'"),
        ("fixed 1s jitter 0.1 jitter 0.2", "'jitter' a second time"),
        ("fixed 2100w", "'2100w' is more than"),
        ("exponential 1s", "a max is needed"),
        ("exponential max 1h", "one delay is needed, 0 are given"),
        ("exponential 1s max", "not a duration: ''"),
        ("exponential 0s max 1h", "the first delay is 0s; 1ms to the max, 1h, is needed"),
        ("exponential 2h max 1h", "the first delay is 2h"),
        ("exponential 1s max 1h factor 0.5", "factor is '0.5'; a number from 1 to 1000 "),
        ("exponential 1s max 1h factor 1e3", "factor is '1e3'"),
        ("exponential 1s max 1h faktor 2", "'faktor' where max, factor, jitter may be"),
        ("exponential 1s max 1h 2", "'2' where max, factor, jitter may be"),
        ("list", "1 to 100 delays are needed, 0 are given"),
        ("list" + " 1s" * 101, "1 to 100 delays are needed, 101 are given"),
        ("list jitter 0.5", "0 are given"),
        ("rocketmq 1", "not a duration: '1'"),
        ("fixed 1s" + " " * 4000, "in up to 4000 characters"),
    ],
)
def test_what_is_refused_and_what_the_refusal_says(text: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        parse_retry(text)
    assert says in str(raised.value)
    assert "allowed" in str(raised.value) and len(str(raised.value)) < 600


@pytest.mark.parametrize("value", [None, 5, b"fixed 1s"])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed: 'fixed 1s'"):
        parse_retry(value)  # type: ignore[arg-type]


def test_the_limit_of_a_delay_is_the_one_limit() -> None:
    assert parse_retry(f"fixed {DELAY_MS_MAX}ms").steps_ms == (DELAY_MS_MAX,)
    assert parse_duration_ms(str(parse_retry(f"fixed {DELAY_MS_MAX}ms")).split()[1]) == DELAY_MS_MAX
