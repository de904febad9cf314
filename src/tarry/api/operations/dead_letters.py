"""Dead letters: messages of a group whose tries are used up, or whose time has passed.

They are kept until somebody decides what to do with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from annotated_types import Ge, Le, MaxLen

from tarry.api.needs import OnTopic, Right
from tarry.api.operation import Action, Int64, Natural, Operation, Rows, int64s, named, one_batch
from tarry.api.operations.messages import HANDLES_MAX
from tarry.base.record_batch import RecordBatch
from tarry.base.types import Int64s

PAGE_ROWS_MAX = 10_000
"""Most dead letters in one answer."""

Offsets = Annotated[Sequence[int] | Int64s | None, int64s(Annotated[list[Int64], MaxLen(HANDLES_MAX)] | None)]


@dataclass(frozen=True, slots=True)
class ListDeadLetters(Operation[RecordBatch]):
    """List dead letters of a group, oldest first: up to ``limit`` (at most 10,000).

    ``after``: list those behind this offset. To turn the page, give the last one's.

    Returns:
        :data:`tarry.api.row_schemas.DEAD_LETTER`: the columns of a message, ``offset``, and ``attempt``: the number of
        times that it was handed out. Its properties "tarry.dead.cause" and others say why it is there.
    """

    wire = Rows("dead-letters", *one_batch("DEAD_LETTER"), "DEAD_LETTER")
    needs = OnTopic(Right.BROWSE)
    topic: str
    group: str
    _: KW_ONLY
    limit: Annotated[int, Ge(1), Le(PAGE_ROWS_MAX)] = 100
    after: Int64 | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Respawn(Operation[int]):
    """Schedule dead letters in their topic again, durably; return how many.

    They come as first tries, for this group alone. Those at ``offsets`` are taken, or the oldest ``limit``, or all; at
    a pace of ``per_second``, or at once.

    Each may be handed out as often as before, or ``tries`` times, and never expires, or ``ttl_ms`` after it is due.
    """

    wire = Action("respawn", "schedule dead letters again, for their group", named("respawned"))
    needs = OnTopic(Right.MANAGE)
    topic: str
    group: str
    _: KW_ONLY
    offsets: Offsets = None
    limit: Natural | None = None
    per_second: float | None = None
    tries: Natural | None = None
    ttl_ms: Natural | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Purge(Operation[int]):
    """Delete dead letters, durably: those at ``offsets``, or all. Its result is how many they were."""

    wire = Action("purge", "let go of dead letters", named("purged"))
    needs = OnTopic(Right.MANAGE)
    topic: str
    group: str
    _: KW_ONLY
    offsets: Offsets = None
