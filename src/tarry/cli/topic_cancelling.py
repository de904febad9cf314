"""Cancelling by topic, for ``tarry cancel --topic``: the topic of handles, and all pending in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tarry.api.outcome import Outcome
from tarry.base.errors import InvalidArgumentError
from tarry.cli.options import check_topic_is_known
from tarry.message.handle import decode

if TYPE_CHECKING:
    from tarry.client import Client

PAGE_ROWS = 1000
_SAID_FIRST = (Outcome.UNKNOWN, Outcome.DELIVERED, Outcome.CANCELLED)


class TopicCancelled(NamedTuple):
    """Result of a topic's cancellation.

    ``outcome``: "done", or that of a message that was not cancelled; ``cancelled`` of ``messages`` were.
    """

    outcome: Outcome
    cancelled: int
    messages: int


def cancel_topic(client: Client, topic: str) -> TopicCancelled:
    """Cancel all that is pending in a topic, a page at a time.

    Of what is accepted meanwhile, some may be cancelled, and some not.

    Raises:
        NotFoundError: there is no such topic.
    """
    outcomes: Counter[Outcome] = Counter()
    cursor = None
    while True:
        page = client.list_pending(topic=topic, limit=PAGE_ROWS, cursor=cursor, bodies=False)
        if page.rows.num_rows:
            seqs, due_ms = (page.rows.column(name).to_pylist() for name in ("seq", "due_ms"))
            outcomes.update(client.cancel_many(client.get_handles(seqs, due_ms)))
        cursor = page.cursor
        if cursor is None:
            break
    if not outcomes:
        check_topic_is_known(client, topic)
    outcome = next((each for each in _SAID_FIRST if outcomes[each]), Outcome.DONE)
    return TopicCancelled(outcome, outcomes[Outcome.DONE], outcomes.total())


def check_topic_of(client: Client, topic: str, handles: Sequence[str], lines: Sequence[int] | None) -> None:
    """Check that messages are of a topic, as far as they are known.

    ``lines``: where in a file the handles are. One that is not known any more is not pending either.

    Raises:
        InvalidArgumentError: names the first that is of another topic, or that is no handle.
    """
    for place, handle in enumerate(handles):
        where = "" if lines is None else f"line {lines[place]}: "
        try:
            parts = decode(handle)
        except InvalidArgumentError as error:
            raise type(error)(f"{where}{error}; nothing was cancelled") from error
        # A history, and not the message: whoever may cancel may ask for it.
        for event in client.history(handle).events:
            found = event.details.get("topic", topic) if event.seq == parts.seq else topic
            if found != topic:
                raise InvalidArgumentError(
                    f"{where}handle {handle} is of a message in topic {found!r}; allowed: of topic {topic!r}; nothing "
                    "was cancelled"
                )
