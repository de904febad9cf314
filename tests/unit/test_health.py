"""What a broker logs of its end."""

from __future__ import annotations

import pytest

from tarry.base.errors import FatalError, OwnershipLostError
from tarry.broker.health import Health


def test_a_lost_ownership_is_one_line_and_other_failures_say_where(caplog: pytest.LogCaptureFixture) -> None:
    for error, has_traceback in ((OwnershipLostError("b:1 has claimed 2"), False), (FatalError("no disk"), True)):
        caplog.clear()
        health = Health()
        health.fail(error)
        health.fail(FatalError("later"))
        [record] = caplog.records
        assert (str(error) in record.getMessage(), bool(record.exc_info)) == (True, has_traceback)
        assert health.state == "fatal"
