"""The intake: the log of what was accepted. Gives each message its seq, and finds by due time what is not in the store
yet.
"""

from tarry.intake.intake import Intake
from tarry.intake.submission import NO_ROWS, Deed, Submission

__all__ = ["NO_ROWS", "Deed", "Intake", "Submission"]
