"""Asks a principal for the right that a request needs, as far as the request itself says on what."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tarry.api.audit import AskedBy
from tarry.api.internal_topics import check_open, without_own
from tarry.api.needs import Listed, OnBroker, OnFound, OnTopic, Right
from tarry.api.operation import Operation, Request
from tarry.api.operations import ListPending
from tarry.base.errors import InvalidMessageError
from tarry.identity.principal import Principal


def check_request(principal: Principal, request: Request, asked: AskedBy | None = None) -> None:
    """Refuse a request for which a caller has no right, or that no caller may make.

    What is on a message or a push subscription that has to be found first is asked for when it is found: see
    :class:`tarry.identity.seen.SeenBroker`.

    Raises:
        ForbiddenError: the right is missing. InvalidArgumentError: the topic is one of Tarry's own.
    """
    check_open(request)
    if principal.rights.is_unlimited:
        return
    needs, topic = request.needs, getattr(request, "topic", None)
    check = partial(principal.check, operation=_name_of(request), asked=asked)
    match needs:
        case OnTopic(right):
            check(right, topic, getattr(request, "group", None))
        case OnFound(right) if topic is not None:
            check(right, topic)
        case OnBroker(right):
            check(right)
        case Listed() if topic is not None:
            check(Right.LOOK, topic)
        case _:
            pass


def _name_of(request: Request) -> str:
    """Return the operation's name; "right" for a request that is none of them."""
    return request.wire.name if isinstance(request, Operation) else "right"


def visible(principal: Principal, request: Request, result: Any) -> Any:
    """Return the part of a listing that a caller may see."""
    needs = request.needs
    if isinstance(request, ListPending) and not principal.rights.is_admin:
        return replace(result, rows=without_own(result.rows))  # a right on all topics is none on the broker's own
    if not isinstance(needs, Listed) or principal.rights.is_unlimited:
        return result
    return needs.keep(result, lambda topic, group: principal.rights.allow(Right.LOOK, topic, group))


def check_rows(principal: Principal, rows: pa.RecordBatch | pa.Table, asked: AskedBy | None = None) -> None:
    """Refuse rows for topics to which a caller may not produce.

    Raises:
        ForbiddenError: names the first of these topics.
    """
    if principal.rights.is_unlimited:
        return
    for topic in topics_of(rows):
        principal.check(Right.PRODUCE, topic, asked=asked)


def topics_of(rows: pa.RecordBatch | pa.Table) -> list[str]:
    """Return the topics of rows. A value that is none is refused when the rows are admitted.

    Raises:
        InvalidMessageError: the column has a type of which no topics can be read.
    """
    if "topic" not in rows.schema.names:
        return []
    column = rows.column("topic")
    try:
        topics = pc.unique(column).to_pylist()
    except pa.ArrowException as error:
        raise InvalidMessageError(f"column 'topic' has type {column.type}; allowed: string") from error
    return [topic for topic in topics if isinstance(topic, str)]


def body_bytes_of(rows: pa.RecordBatch | pa.Table) -> int:
    """Return the bytes of the bodies of rows."""
    return rows.column("body").nbytes if "body" in rows.schema.names else 0
