"""Bodies that several administration requests share."""

from __future__ import annotations

import json
from typing import Any

from tarry.fronts.rocketmq.classic.queues import queue_name

DATA_VERSION = {"counter": 0, "stateVersion": 0, "timestamp": 0}
"""Version of tables whose changes are not counted."""


def queue_table(broker: str, by_topic: dict[str, list[Any]], more: dict[str, Any] | None = None) -> bytes:
    """Encode a body with a table by queue; ``by_topic`` is in the order of the queues.

    Its keys are objects, which is not JSON, but fastjson writes and reads it.
    """
    entries = ",".join(
        f"{json.dumps(queue_name(broker, topic, number))}:{json.dumps(value)}"
        for topic, values in by_topic.items()
        for number, value in enumerate(values)
    )
    rest = "".join(f',"{key}":{json.dumps(value)}' for key, value in (more or {}).items())
    return f'{{"offsetTable":{{{entries}}}{rest}}}'.encode()
