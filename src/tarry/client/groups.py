"""Groups, topics and dead letters: methods of the client."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from tarry.api.groups import GroupInfo, TopicInfo
from tarry.api.operation import decoded as read_answer
from tarry.base.delay import datetime_ms
from tarry.base.errors import InvalidArgumentError
from tarry.client.connection import Connection

I = TypeVar("I", GroupInfo, TopicInfo)  # noqa: E741


class Groups:
    """For :class:`tarry.client.Client`. Each of these calls is durable when it returns.

    They raise NotFoundError where there is no such group, InvalidArgumentError where a value is not allowed, and
    UnavailableError where there was no answer.
    """

    _connection: Connection
    _timeout_s: float

    def set_group(
        self,
        topic: str,
        group: str,
        *,
        retry: str | None = None,
        tries: int | None = None,
        inflight_max: int | None = None,
        filter: str | None = None,
        ordered: bool | None = None,
        paused: bool | None = None,
        lease_ms: int | None = None,
        start: str | None = None,
    ) -> GroupInfo:
        """Change settings of a group (None: as it is). A group that is new is made.

        Args:
            retry: how long a message waits after a nack without a delay: "fixed 1s", "exponential 1s max 1h", "list 10s
                30s 1m", "rocketmq", each maybe with "jitter 0.2"; empty: the broker's default.
            tries: how often a message is handed out before it goes to the dead letters; 0: no limit.
            inflight_max: messages leased at a time over all consumers; 0: no limit.
            filter: which messages it wants: tags as "a || b", or "sql: price > 3"; empty: all.
            ordered: of each ordering key, one message at a time.
            paused: nothing is handed out.
            lease_ms: of consumers that ask for none; 0: the broker's default.
            start: "earliest" or "latest", where a new group begins.
        """
        given = {
            "retry": retry,
            "tries": tries,
            "inflight_max": inflight_max,
            "filter": filter,
            "ordered": ordered,
            "paused": paused,
            "lease_ms": lease_ms,
            "start": start,
        }
        body = {name: value for name, value in given.items() if value is not None}
        return self._info(GroupInfo, "set-group", {"topic": topic, "group": group, **body})

    def group_info(self, topic: str, group: str) -> GroupInfo:
        """A group's settings, and where its messages are."""
        return self._info(GroupInfo, "group-info", {"topic": topic, "group": group})

    def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """All groups, of one topic or of every one, by name."""
        found = self._ask("groups", {} if topic is None else {"topic": topic})
        return read_answer(lambda: [_made(GroupInfo, one) for one in found], found)

    def delete_group(self, topic: str, group: str) -> None:
        """Forget a group; its consumers get nothing more. Its dead letters stay."""
        self._ask("delete-group", {"topic": topic, "group": group})

    def pause(self, topic: str, group: str) -> None:
        """Hand out nothing, until :meth:`resume`. What consumers hold can be settled."""
        self._ask("pause", {"topic": topic, "group": group})

    def resume(self, topic: str, group: str) -> None:
        """Hand out again."""
        self._ask("resume", {"topic": topic, "group": group})

    def seek(self, topic: str, group: str, to: datetime | int | str) -> int:
        """Have a group go on from the first message due at ``to`` (an aware datetime, or UTC milliseconds) or later,
        from the "earliest" that is kept, or the "latest". What lies before is skipped, what lies behind is delivered
        again.

        Returns:
            How many ready messages are ahead of the group then.
        """
        place = datetime_ms(to) if isinstance(to, datetime) else to
        answer = self._ask("seek", {"topic": topic, "group": group, "to": place})
        return read_answer(lambda: int(answer["ahead"]), answer)

    def set_topic(
        self,
        topic: str,
        *,
        late: str | None = None,
        lateness_ms_max: int | None = None,
        ordered: bool | None = None,
        declared: bool | None = None,
    ) -> TopicInfo:
        """Change a topic's settings (None: as it is); a topic that is new is made.

        Args:
            late: what becomes of late messages that do not say it: "deliver", "drop" or "dead"; empty: drop.
            lateness_ms_max: how late a message without a ttl may be; -1: any.
            ordered: all groups of the topic keep the order of ordering keys, whatever their own settings.
            declared: the topic is there before it has a message: fronts may be told not to make topics themselves.
        """
        given = {"late": late, "lateness_ms_max": lateness_ms_max, "ordered": ordered, "declared": declared}
        body = {name: value for name, value in given.items() if value is not None}
        return self._info(TopicInfo, "set-topic", {"topic": topic, **body})

    def topic_info(self, topic: str) -> TopicInfo:
        """What becomes of a topic's late messages."""
        return self._info(TopicInfo, "topic-info", {"topic": topic})

    # -- dead letters --------------------------------------------------------------------------------------------------

    def dead_letters(self, topic: str, group: str, *, limit: int = 100, after: int | None = None) -> pa.RecordBatch:
        """Up to ``limit`` (at most 10,000) dead letters of a group, oldest first, behind the one at offset ``after``:
        to turn the page, give the last one's.

        Returns:
            The columns of a message, ``offset``, and ``attempt``: how often it had been handed out. Why each is there
            say its properties "tarry.dead.cause" and others.
        """
        ticket = {"op": "dead-letters", "topic": topic, "group": group, "limit": limit, "after": after}
        table = self._connection.read(ticket, timeout_s=self._timeout_s)
        found = table.combine_chunks().to_batches()
        return found[0] if found else pa.RecordBatch.from_pylist([], schema=table.schema)

    def respawn(
        self,
        topic: str,
        group: str,
        *,
        offsets: Sequence[int] | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Schedule dead letters again, for this group alone, as first tries: those at ``offsets``, or the oldest
        ``limit``, or all; at a pace of ``per_second``, or at once. How many.
        """
        body = {"offsets": plain_offsets(offsets), "limit": limit, "per_second": per_second}
        answer = self._ask("respawn", {"topic": topic, "group": group, **body})
        return read_answer(lambda: int(answer["respawned"]), answer)

    def purge(self, topic: str, group: str, *, offsets: Sequence[int] | None = None) -> int:
        """Let go of dead letters: those at ``offsets``, or all. How many."""
        answer = self._ask("purge", {"topic": topic, "group": group, "offsets": plain_offsets(offsets)})
        return read_answer(lambda: int(answer["purged"]), answer)

    def _info(self, kind: type[I], action: str, body: dict[str, Any]) -> I:
        answer = self._ask(action, body)
        return read_answer(lambda: _made(kind, answer), answer)

    def _ask(self, action: str, body: dict[str, Any]) -> Any:
        return self._connection.action(action, body, timeout_s=self._timeout_s)


def _made(kind: type[I], plain: dict[str, Any]) -> I:
    # What a newer broker says beyond that is left out.
    return kind(**{field.name: plain[field.name] for field in fields(kind)})


def plain_offsets(offsets: Sequence[int] | None) -> list[int] | None:
    """Offsets as JSON takes them, also of numpy's integers.

    Raises:
        InvalidArgumentError: they are something else.
    """
    try:
        return None if offsets is None else [operator.index(offset) for offset in offsets]
    except TypeError as error:
        raise InvalidArgumentError(f"offsets are {offsets!r:.80}; allowed: whole numbers") from error
