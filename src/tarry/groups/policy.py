"""Effects of a group's settings, and of its topic's, on its messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tarry.api.groups import GroupSettings, TopicSettings
from tarry.api.retry import RetryPolicy, parse_retry
from tarry.base.token_bucket import TokenBucket
from tarry.base.types import Int32s, Mask
from tarry.message.columns import without_nulls
from tarry.message.dead_topics import is_dead_topic
from tarry.message.filter import parse_filter
from tarry.message.filter_sql import SqlFilter

CHOICE_ROWS_MAX = 8192
"""Most rows that a group examines at once if it may not want most of them; others wait meanwhile."""
PART_ROWS_MAX = 1024
"""Most rows if the filter is a condition, which takes some time for each."""
_UNLIMITED = np.iinfo(np.int32).max


class Policy:
    """Guarded by the group's lock; the parts of a group ask it for each batch, so what is derived is kept.

    ``topic_settings`` is None where the topic has nothing but defaults.
    """

    def __init__(
        self,
        topic_name: str,
        settings: GroupSettings,
        topic_settings: TopicSettings | None,
        default_retry: RetryPolicy,
    ) -> None:
        self._is_dead_topic = is_dead_topic(topic_name)  # a dead letter does not become one again
        self._default_retry = default_retry
        self._per_second = 0
        self.rate: TokenBucket | None = None
        """Limit of what is handed out a second, in seconds of the broker's clock; None: any number."""
        self.change(settings, topic_settings)

    def change(self, settings: GroupSettings, topic_settings: TopicSettings | None) -> None:
        """Other settings, from now on."""
        self.settings = settings
        self.topic_settings = topic_settings
        self.retry = parse_retry(settings.retry) if settings.retry else self._default_retry
        wanted = parse_filter(settings.filter)
        self.filter = None if wanted.matches_all else wanted
        self.ordered = settings.ordered or (topic_settings is not None and topic_settings.ordered)
        """True if one message of each ordering key is delivered at a time.

        Either the group's own settings or its topic's say so.
        """
        rates = [settings.max_per_second, 0 if topic_settings is None else topic_settings.max_per_second]
        per_second = min((rate for rate in rates if rate), default=0)
        if per_second != self._per_second:  # else another setting would fill the bucket
            self._per_second = per_second
            self.rate = TokenBucket(per_second, 0.0) if per_second else None
        self.choice_rows_max = PART_ROWS_MAX if isinstance(wanted, SqlFilter) else CHOICE_ROWS_MAX
        limits_lateness = topic_settings is not None and topic_settings.lateness_ms_max >= 0
        self.is_selective = self.filter is not None or self.ordered or limits_lateness
        """True if it may pass over or hold back messages that do not ask for that themselves."""

    @property
    def makes_dead_letters(self) -> bool:
        """True if messages may become dead letters, for their tries or their lateness; dead letters may not."""
        return not self._is_dead_topic

    def own_tries(self, column: pa.Array) -> Int32s | None:
        """Return each message's own limit of tries, 0 if it has none; None if no message has one."""
        if column.null_count == len(column) or self._is_dead_topic:
            return None
        tries: Int32s = without_nulls(column, 0)
        return tries

    def exhausted(self, attempts: Int32s, own_tries: Int32s | None) -> Mask:
        """Return which of these tries (1 is the first) are one too many.

        The arrays have one length, an entry for each message; ``own_tries`` as :meth:`own_tries` gives it.
        """
        if self._is_dead_topic:
            return np.zeros(len(attempts), np.bool_)
        limit = self.settings.tries or _UNLIMITED
        if own_tries is None:
            return attempts > limit
        return attempts > np.where(own_tries > 0, own_tries, limit)
