"""A program that handles messages: handlers by topic, kept going until it is told to stop.

``worker`` is what people see: it collects handlers, middleware and ``lifespans`` · ``handler`` is one of them,
``bodies`` what it takes, ``outcomes`` what becomes of a message after it · ``serving`` is one run, with a ``loop`` of
tasks for each handler, and ``threads`` for those that are plain functions · ``figures`` counts · ``middleware`` has
some that are ready · ``rehearsal`` runs handlers in tests, on a broker whose clock the test moves · ``supervisor`` and
``target`` are for the command ``tarry work``, which has the processes, their signals and a port.
"""

from tarry.worker.bodies import BodyError
from tarry.worker.outcomes import Reject, Release, Retry
from tarry.worker.worker import Worker

__all__ = ["BodyError", "Reject", "Release", "Retry", "Worker"]
