"""A cache that begins anew when it is full."""

from __future__ import annotations

from tarry.base.bounded_cache import BoundedCache


def test_it_keeps_what_it_has_room_for_and_then_begins_anew() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    assert [cache.keep("a", 1), cache.keep("b", 2)] == [1, 2]
    assert cache == {"a": 1, "b": 2}
    cache.keep("a", 3)
    assert cache == {"a": 3, "b": 2}, "a new value for a key that is there needs no room"
    cache.keep("c", 4)
    assert cache == {"c": 4}
    assert cache.get("a") is None
