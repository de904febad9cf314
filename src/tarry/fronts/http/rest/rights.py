"""The rights that routes need, in words."""

from __future__ import annotations

from collections.abc import Collection

from tarry.api.needs import Listed, Needs, OnBroker, OnFound, OnPushSubscription, OnTopic

PRODUCE, CONSUME = "produce on the topic", "consume on the topic and the group"


def needs_text(needs: Needs, fields: Collection[str]) -> str:
    """Return what right an operation with these fields needs; empty: none."""
    match needs:
        case OnBroker(right):
            return right.value
        case OnFound(right):
            return f"{right} on the message's topic"
        case OnPushSubscription(right):
            return f"{right} on the topic and the group of the subscription"
        case OnTopic(right) if "topic" in fields:
            return f"{right} on the topic" + (" and the group" if "group" in fields else "")
        case OnTopic(right):
            return f"{right} on all topics"
        case Listed():
            return "look, on what is listed"
    return ""
