"""The clock of a broker that was started for tests: where it stands, and to move it on."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from tarry.api.needs import Nothing, OnBroker, Right
from tarry.api.operation import Action, Int64, Natural, Operation, data


@dataclass(frozen=True, slots=True)
class ClockState:
    """The time of a test clock: ``now_ms`` in UTC milliseconds, ``now`` in ISO 8601."""

    now_ms: int
    now: str


@dataclass(frozen=True, slots=True)
class GetClock(Operation[ClockState]):
    """Return where the test clock stands.

    Raises:
        NotFoundError: the broker runs on the real clock.
    """

    wire = Action("clock", "where a test clock stands", data(ClockState))
    needs = Nothing()


@dataclass(frozen=True, slots=True)
class AdvanceClock(Operation[ClockState]):
    """Move the test clock on, stopping at each moment at which something happens.

    When this returns, all that fell due until then can be received, leases and back-offs that ended are over, and what
    is pushed had an answer.

    Args:
        by: how far, as in "30d" or "1h30m".
        to: to which instant instead: "2027-01-01T00:00:00Z", or UTC milliseconds.
        wait_ms: at each such moment, how long in real milliseconds consumers have at most to acknowledge what is ready,
            before the clock goes on.

    Raises:
        NotFoundError: the broker runs on the real clock. InvalidArgumentError: both or none are given, or the instant
        is before the clock's.
    """

    wire = Action("advance-clock", "move a test clock on", data(ClockState))
    needs = OnBroker(Right.ADMIN)
    by: str | None = None
    _: KW_ONLY
    to: Int64 | str | None = None
    wait_ms: Natural = 0
