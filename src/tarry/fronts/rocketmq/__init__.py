"""The RocketMQ front: official v5 clients (gRPC, ``apache.rocketmq.v2``) work unchanged. ``docs/rocketmq.md``.

::

    front       the thread and its loop; puts the parts together
    service     which call goes where               caller     headers: who calls, and the signature
    routes      topics to queues                    telemetry  settings and commands        clients   who is there
    sending     one batch a loop turn               draft      what is checked of a message
    receiving   long polls                          lines      who waits for a group        rows      messages out
    settling    ack, not yet, never                 recalling  withdraw a delayed message   offsets   pulling
    halves      undecided transactions, on disk     checks     asking producers about them
    groups, topics, dead, names, properties, handles, refusal, stubs

Everything is on the loop's thread, but for calls that may wait for the disk (``aside``).
"""

from tarry.fronts.rocketmq.front import RocketMQFront

__all__ = ["RocketMQFront"]
