"""How many examples a property test tries: by the profile, so that `make test` takes few and the rest many."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """``count`` of a hundred: 0.2 of it with `quick`, 0.6 with the default profile, ten times with `thorough`."""
    return max(1, count * settings.default.max_examples // 100)
