"""Operations for the data pipeline: the intake's state, its messages, and news of the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tarry.api.needs import OnBroker, Right
from tarry.api.operation import NOTHING, PLAIN, Action, Natural, Operation, Rows
from tarry.api.operations.queues import batches, check_range
from tarry.base.record_batch import RecordBatch


@dataclass(frozen=True, slots=True)
class GetIntakeState(Operation[dict[str, Any]]):
    """Return the data that the schedule query plans with; ``docs/formats-flight.md`` describes the fields."""

    wire = Action("intake-state", "what the schedule query plans with", PLAIN)
    needs = OnBroker(Right.PIPELINE)


@dataclass(frozen=True, slots=True)
class ReadIntake(Operation[Iterator[RecordBatch]]):
    """Read messages of the intake with ``start <= seq < end``, in order.

    The columns are :data:`tarry.message.schema.SCHEMA`. Messages that have fired and were deleted since are left out.
    """

    wire = Rows("intake", *batches("MESSAGE"), "MESSAGE", goes_on_by="seq")
    needs = OnBroker(Right.PIPELINE)
    start: Natural
    end: Natural

    def __post_init__(self) -> None:
        check_range(self.start, self.end)


@dataclass(frozen=True, slots=True)
class AnnounceStore(Operation[None]):
    """The store has a new version: the broker takes it up soon."""

    wire = Action("store-committed", "the store has a new version", NOTHING)
    needs = OnBroker(Right.PIPELINE)


@dataclass(frozen=True, slots=True)
class SetPipelineStatus(Operation[None]):
    """Report the status of the pipeline, or of its supervisor; merged into ``status()["pipeline"]``."""

    wire = Action("pipeline-status", "what the pipeline says of itself", NOTHING)
    needs = OnBroker(Right.PIPELINE)
    status: Mapping[str, Any]

    def to_wire(self) -> dict[str, Any]:
        return dict(self.status)

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> SetPipelineStatus:
        return cls(values)

    @classmethod
    def wire_fields(cls) -> None:
        return None
