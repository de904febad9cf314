"""Names of MQTT as Tarry's: topics, filters, and the groups of subscriptions.

A character that a topic of Tarry cannot have is percent-encoded: ``device:1/temp`` is the topic ``device%3A1/temp``.
``$delayed/SECONDS/TOPIC`` is EMQX's form of a delayed message (docs.emqx.com, "Delayed Publish").
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from tarry.fronts.mqtt.reasons import MqttError, Reason
from tarry.message.topics import encoded_topic, is_internal, is_topic

GROUP = "mqtt@"
"""Beginning of the group of a client's own subscriptions, as of a broadcast: ``mqtt@CLIENT_ID``."""
GROUP_BYTES_MAX = 255
_DELAYED = re.compile(r"\$delayed/([0-9]{1,10})/(.+)", re.DOTALL)
_SHARED = re.compile(r"\$share/([^/+#]+)/(.+)", re.DOTALL)
DELAY_S_MAX = 4_294_967
"""EMQX's longest delay, which a user property may exceed."""


class PublishTarget(NamedTuple):
    """Meaning of a PUBLISH's topic."""

    topic: str
    """Tarry's topic."""
    delay_s: int | None = None


class FilterSource(NamedTuple):
    """Meaning of a filter: a topic, and the group that shares it; None: the client's own."""

    topic: str
    group: str | None = None


@lru_cache(4096)
def target_of(name: str) -> PublishTarget:
    """Return the meaning of a PUBLISH's topic.

    Raises:
        MqttError: TOPIC_INVALID.
    """
    if not name.startswith("$delayed/"):
        return PublishTarget(_topic(name))
    found = _DELAYED.fullmatch(name)
    if found is None or int(found[1]) > DELAY_S_MAX:
        allowed = f"$delayed/SECONDS/TOPIC, SECONDS from 0 to {DELAY_S_MAX}"
        raise MqttError(Reason.TOPIC_INVALID, f"topic {name!r:.80}; allowed: {allowed}")
    return PublishTarget(_topic(found[2]), int(found[1]))


def source_of(filter: str) -> FilterSource:
    """Return the meaning of a filter.

    Raises:
        MqttError: WILDCARDS_UNSUPPORTED, or FILTER_INVALID.
    """
    group, topic = None, filter
    if filter.startswith("$share/"):
        found = _SHARED.fullmatch(filter)
        if found is None:
            raise MqttError(Reason.FILTER_INVALID, f"filter {filter!r:.80}; allowed: $share/GROUP/TOPIC")
        group, topic = found[1], found[2]
    if "+" in topic or "#" in topic:
        raise MqttError(Reason.WILDCARDS_UNSUPPORTED, f"filter {filter!r:.80} has wildcards; allowed: a topic")
    # TOPIC_INVALID is no reason of a SUBACK (MQTT 5, section 3.9.3): clients end a connection with one.
    return FilterSource(_topic(topic, Reason.FILTER_INVALID), group)


def _topic(name: str, refusal: Reason = Reason.TOPIC_INVALID) -> str:
    topic = encoded_topic(name)
    if name.startswith("$") or "+" in name or "#" in name or not is_topic(topic) or is_internal(topic):
        allowed = "1 to 255 characters as Tarry has them, not beginning with $ or tarry., without + and #"
        raise MqttError(refusal, f"topic {name!r:.80}; allowed: {allowed}")
    return topic


def group_of(client_id: str, owner: str = "") -> str:
    """Return the group of a client's own subscriptions.

    ``owner``: the identity whose client it is, where a client of another one has the same id.

    Raises:
        MqttError: CLIENT_ID_INVALID: it is too long.
    """
    group = GROUP + client_id.replace("%", "%25").replace("@", "%40") + (f"@{owner}" if owner else "")
    if len(group.encode()) > GROUP_BYTES_MAX:
        raise MqttError(Reason.CLIENT_ID_INVALID, f"client id {client_id!r:.80} is too long for a group's name")
    return group
