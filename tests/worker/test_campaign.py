"""Workers that are stopped and killed under load, in small; ``make workers`` is the long form."""

from __future__ import annotations

import pytest

from tests.worker import campaign


@pytest.mark.rest
def test_nothing_is_lost_or_doubled() -> None:
    found = campaign.run(terms=8, kills=4, seed=20)
    assert found.faults == []
    assert found.again_after_kill > 0, "the kills have met nothing: raise the load"
