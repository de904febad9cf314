"""The past of rates, lateness and lag, of which the broker keeps a row a minute."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass
from typing import Annotated, Any

from annotated_types import Ge, Le

from tarry.api.needs import OnTopic, Right
from tarry.api.operation import Action, Codec, Int64, Operation, known
from tarry.api.rates import RateHistory, RatePoint
from tarry.base.errors import InvalidArgumentError

POINTS_MAX = 1500


def _history(answer: Any) -> RateHistory:
    return known(RateHistory, answer, points=[known(RatePoint, point) for point in answer["points"]])


@dataclass(frozen=True, slots=True)
class GetRates(Operation[RateHistory]):
    """Return rates, lateness, what was pending and ready, and herds of the last 30 days, by steps of time.

    A step is a minute, or as many as it takes to need no more points than are asked for. The minute that is going on is
    not among them.

    Args:
        topic: of one topic; else of the whole broker.
        since_ms: from this instant on; an hour before the end if it is not said.
        until_ms: before this instant; else now.
        points_max: most points of the answer; 1 to 1,500.

    Raises:
        InvalidArgumentError: the end is not after the beginning.
    """

    wire = Action("rates", "rates, lateness and lag of the past", Codec(asdict, _history, shape=RateHistory))
    needs = OnTopic(Right.LOOK)
    _: KW_ONLY
    topic: str | None = None
    since_ms: Int64 | None = None
    until_ms: Int64 | None = None
    points_max: Annotated[int, Ge(1), Le(POINTS_MAX)] = 720

    def __post_init__(self) -> None:
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise InvalidArgumentError(f"since_ms is {self.since_ms}; allowed: before until_ms, {self.until_ms}")
        if not isinstance(self.points_max, int) or not 1 <= self.points_max <= POINTS_MAX:
            raise InvalidArgumentError(f"points_max is {self.points_max!r:.80}; allowed: 1 to {POINTS_MAX}")
