"""The intake: the log of what was accepted. Gives each message its seq, and finds by due time what is not in the store
yet.
"""

from tarry.intake.intake import Accepted, Intake, Submission

__all__ = ["Accepted", "Intake", "Submission"]
