"""Several workers of the tests: what belongs together is done by one of them."""

from __future__ import annotations

import pytest


def test_the_tests_of_a_file_are_a_group(request: pytest.FixtureRequest) -> None:
    """Its name has to be in the id, where the scheduler looks: a mark alone is nothing."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("needs --dist loadgroup")
    assert request.node.nodeid.endswith("@unit/test_groups_of_workers.py")
