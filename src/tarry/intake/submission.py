"""What is given to the intake's writer, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from tarry.base.errors import TarryError
from tarry.message.receipt import Accepted
from tarry.message.schema import UNNUMBERED

NO_ROWS = pa.RecordBatch.from_pylist([], schema=UNNUMBERED)


class WriteBatch(Protocol):
    """What is decided in one commit: see ``tarry.broker.commands.write_batch``."""

    next_seq: int
    """Of the next row that is written."""

    def register(self, rows: int) -> bool:
        """The ``rows`` that the commands of this commit came to are durable. Whether everybody knows now what they say
        of names, and all of them are messages.
        """
        ...

    def on_durable(self) -> None:
        """All of it is durable and published."""
        ...

    def on_refused(self) -> None:
        """The disk refused it: nothing of it came to pass."""
        ...


class Command(Protocol):
    """What a submission asks beyond having its rows stored. The writer calls it, in the order of the log."""

    def decide(self, batch: Any) -> pa.RecordBatch | None:
        """The rows to write, if any; ``batch`` is the :class:`WriteBatch` of this commit.

        Raises:
            TarryError: it is refused, and nothing was decided.
        """
        ...

    def on_durable(self, first_seq: int) -> None:
        """It is durable; its rows begin at ``first_seq``."""
        ...

    def on_refused(self, error: TarryError) -> None:
        """Nothing of it was accepted."""
        ...


@dataclass(frozen=True, slots=True)
class Submission:
    """An admitted batch on its way to the disk, and who gets the result; or a command, which says what to write and
    answers its caller itself.
    """

    batch: pa.RecordBatch
    on_result: Callable[[Accepted | TarryError], None]
    command: Command | None = None

    def refuse(self, error: TarryError) -> None:
        """Tell whoever submitted it that nothing was accepted."""
        if self.command is not None:
            self.command.on_refused(error)
        else:
            self.on_result(error)
