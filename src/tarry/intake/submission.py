"""What is given to the intake's writer, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from tarry.api.receipt import Accepted
from tarry.base.errors import TarryError
from tarry.base.message import UNNUMBERED

NO_ROWS = pa.RecordBatch.from_pylist([], schema=UNNUMBERED)


class Round(Protocol):
    """What is decided in one commit: see ``tarry.broker.commands``."""

    next_seq: int

    def settle(self) -> None:
        """All of it is durable and published."""
        ...

    def undo(self) -> None:
        """The disk refused it."""
        ...


class Deed(Protocol):
    """What a submission asks beyond having its rows stored. The writer calls it, in the order of the log."""

    def decide(self, round: Any) -> pa.RecordBatch | None:
        """The rows to write, if any. Raises TarryError: it is refused, and nothing was decided."""
        ...

    def answer(self, first_seq: int) -> None:
        """It is durable; its rows begin at ``first_seq``."""
        ...

    def refuse(self, error: TarryError) -> None:
        """Nothing of it was accepted."""
        ...


@dataclass(frozen=True, slots=True)
class Submission:
    """An admitted batch on its way to the disk, and whom to tell; or a deed, which says what to write."""

    batch: pa.RecordBatch
    done: Callable[[Accepted | TarryError], None]
    deed: Deed | None = None

    def fail(self, error: TarryError) -> None:
        """Tell that nothing was accepted."""
        if self.deed is not None:
            self.deed.refuse(error)
        else:
            self.done(error)
