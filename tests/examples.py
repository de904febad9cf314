"""How many examples a property test tries: by the profile, so that `make test` takes few and the rest many."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """``count`` with the default profile; a fifth with ``quick``, ten times as many with ``thorough``."""
    return max(1, count * settings.default.max_examples // 100)
