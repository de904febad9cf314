"""What has become due: ``log`` is the ready log, frames by topic · ``topic`` is one topic's queue and its offsets ·
``journal`` makes durable what groups have acknowledged · ``search`` finds messages in the log.

Parts of the ready log: ``recovery`` (what is on disk) · ``writer`` ·
``frame_table`` (which frames a segment has) · ``reader`` · ``retention`` (what is deleted). The journal's: ``entries``.
"""

from tarry.queue.journal import Journal
from tarry.queue.log import ReadyLog
from tarry.queue.topic import Topic

__all__ = ["Journal", "ReadyLog", "Topic"]
