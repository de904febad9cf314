"""RocketMQ's own topics of delayed messages, which tools look at; in Tarry they hold no message.

Tools ask for their routes, statistics and offsets. They are read only: pending messages are not shown before they are
due, and nothing may be sent there.
"""

from __future__ import annotations

from tarry.base.config import Config
from tarry.base.delay import parse_levels
from tarry.fronts.rocketmq.common.refusal import Code, Refusal

LEVELS_TOPIC, WHEEL_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"


def delay_queues(topic: str, config: Config) -> int | None:
    """Return the number of queues of one of these topics; None if it is another topic.

    The topic of levels has one queue for each level.
    """
    if topic == LEVELS_TOPIC:
        return len(parse_levels(config.delay_levels))
    return 1 if topic == WHEEL_TOPIC else None


def is_delay_topic(topic: str) -> bool:
    """Return whether it is one of these topics."""
    return topic in (LEVELS_TOPIC, WHEEL_TOPIC)


def refuse_delay_topic(topic: str) -> None:
    """Refuse to send to one of these topics.

    Raises:
        Refusal: ILLEGAL_TOPIC.
    """
    if is_delay_topic(topic):
        raise Refusal(
            Code.ILLEGAL_TOPIC,
            f"topic {topic!r} can be looked at only; allowed: any other, with DELAY or TIMER_DELIVER_MS for its delay",
        )
