"""The queues of messages that have become due, and the journal of what groups settled.

``log`` is the ready log: frames, each of one topic. ``topic`` is the queue of one topic, with its offsets. ``journal``
makes durable what groups have acknowledged. ``search`` finds messages in the log.

Parts of the ready log: ``recovery`` (reads what is on disk), ``writer``, ``frame_table`` (the frames of each segment),
``reader``, ``retention`` (deletion of segments). Part of the journal: ``entries``.
"""

from tarry.queue.journal import Journal
from tarry.queue.log import ReadyLog
from tarry.queue.topic import Topic

__all__ = ["Journal", "ReadyLog", "Topic"]
