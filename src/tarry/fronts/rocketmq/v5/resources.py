"""Topics and groups as v5 has them, ``Resource``, and their names in the broker."""

from __future__ import annotations

from typing import Any

from tarry.fronts.rocketmq.common.groups import ClientGroups
from tarry.fronts.rocketmq.common.names import group_name, topic_name
from tarry.fronts.rocketmq.common.stubs import definition


def topic_of(resource: Any, space: str) -> str:
    """Return the broker's name of a topic.

    ``space``: the client's namespace, used if the resource has none of its own.

    Raises:
        Refusal: ILLEGAL_TOPIC.
    """
    return topic_name(resource.name, resource.resource_namespace or space)


def group_of(resource: Any, space: str) -> str:
    """Return the broker's name of a consumer group, as :func:`topic_of` does of a topic.

    Raises:
        Refusal: ILLEGAL_CONSUMER_GROUP.
    """
    return group_name(resource.name, resource.resource_namespace or space)


def copy_of(resource: Any) -> Any:
    """Return a topic or a group as the client named it, for an answer."""
    return definition.Resource(resource_namespace=resource.resource_namespace, name=resource.name)


def filter_of(groups: ClientGroups, expression: Any) -> str:
    """Return a ``FilterExpression`` in the broker's syntax of filters.

    Raises:
        Refusal: ILLEGAL_FILTER_EXPRESSION.
    """
    return groups.filter_text(expression.expression, sql=expression.type == definition.FilterType.SQL)
