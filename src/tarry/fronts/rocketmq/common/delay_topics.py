"""RocketMQ's own topics of delayed messages, as something to look at: here no message is in them.

Tools ask for their routes, statistics and offsets. They are read only: what is pending is not shown before it is due,
and nothing may be sent there.
"""

from __future__ import annotations

from tarry.base.config import Config
from tarry.base.delay import parse_levels
from tarry.fronts.rocketmq.common.refusal import Code, Refusal

LEVELS_TOPIC, WHEEL_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"


def delay_queues(topic: str, config: Config) -> int | None:
    """Count the queues of one of these topics: of levels, one each; None: it is another topic."""
    if topic == LEVELS_TOPIC:
        return len(parse_levels(config.delay_levels))
    return 1 if topic == WHEEL_TOPIC else None


def refuse_delay_topic(topic: str) -> None:
    """Refuse what is sent to one of these.

    Raises:
        Refusal: ILLEGAL_TOPIC.
    """
    if topic in (LEVELS_TOPIC, WHEEL_TOPIC):
        raise Refusal(
            Code.ILLEGAL_TOPIC,
            f"topic {topic!r} can be looked at only; allowed: any other, with DELAY or TIMER_DELIVER_MS for its delay",
        )
