"""The order of delivery, as columns and as tuples: the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tarry.base.types import Key, at_or_after, before, count_before, is_in_order

KEYS = st.builds(Key, st.integers(-2, 3), st.integers(0, 4))


@given(st.lists(KEYS, max_size=20), KEYS)
def test_columns_are_ordered_as_tuples_are(keys: list[Key], key: Key) -> None:
    due, seq = (np.array([k[i] for k in keys], np.int64) for i in (0, 1))
    assert before(due, seq, key).tolist() == [k < key for k in keys]
    assert at_or_after(due, seq, key).tolist() == [k >= key for k in keys]
    assert is_in_order(due, seq) == (keys == sorted(set(keys)))


@given(st.lists(KEYS, max_size=20), KEYS)
def test_in_sorted_rows_a_search_counts_what_is_before(keys: list[Key], key: Key) -> None:
    due, seq = (np.array([k[i] for k in sorted(keys)], np.int64) for i in (0, 1))
    assert count_before(due, seq, key) == sum(k < key for k in keys)
