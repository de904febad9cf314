"""The intake: the log of accepted messages.

Gives each message its seq, and finds by due time those that are not in the store yet.

``submission`` (what is given to the writer) → ``writer`` (decides, numbers, writes) → ``segments`` (the files, each
with an ``index`` by due time, in memory or as a ``sealed_index``) → ``intake`` (reads them).
"""

from tarry.intake.intake import Intake
from tarry.intake.segments import Segments
from tarry.intake.submission import NO_ROWS, Command, Submission
from tarry.intake.writer import IntakeWriter

__all__ = ["NO_ROWS", "Command", "Intake", "IntakeWriter", "Segments", "Submission"]
