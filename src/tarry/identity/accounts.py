"""The use that each identity makes of a broker, held against its quotas.

A rate that is used up first delays: a front waits for :meth:`CountedAccount.wait_s` before it goes on with a request.
Only what would have to wait longer is refused. So a client that sends one message after the other is slowed down to
its rate and sees no error, and one that does not wait cannot pile up work. What one request takes more than there is,
later ones pay for: a batch is taken whole or not at all. Consumers are handed nothing while a rate of theirs is used up
(:meth:`CountedAccount.held_back`), so no lease is lost for it.

Messages, topics and groups that are there are counted in the topics on which an identity has rights, whoever made them,
once a second; what it adds meanwhile is added.
"""

from __future__ import annotations

import builtins
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tarry.api.accounts import HeldBack
from tarry.api.identities import Identity
from tarry.api.needs import Right
from tarry.api.quotas import DELAY_S_MAX, FILTERING, RECEIVING, SENDING, Quotas, QuotaUse
from tarry.base.clock import Clock
from tarry.base.errors import QuotaExceededError
from tarry.base.token_bucket import TokenBucket
from tarry.identity.rates import Rates
from tarry.identity.rights import Rights
from tarry.message.receipt import TopicPending
from tarry.message.topics import is_internal

COUNT_S = 1.0
"""Seconds for which a count of what is there holds."""
CREATIONS_S = 60.0
"""Seconds for which topics and groups that may be made are saved up."""


@dataclass(frozen=True, slots=True)
class Existing:
    """Pending messages of a broker by topic, all topics among them, and its groups as (topic, name)."""

    pending: Mapping[str, int]
    groups: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, counts: Iterable[TopicPending], groups: Iterable[tuple[str, str]]) -> Existing:
        """Return what was counted, without the broker's own topics."""
        return cls({each.topic: each.pending for each in counts if not is_internal(each.topic)}, frozenset(groups))


NOTHING_THERE = Existing({}, frozenset())


class Count:
    """Topics, groups and messages of one identity, as they were counted, with those added since."""

    __slots__ = ("at_s", "groups", "pending", "topics")

    def __init__(self, rights: Rights, existing: Existing, at_s: float) -> None:
        self.topics = {topic for topic in existing.pending if rights.allow(Right.PRODUCE, topic)}
        self.groups = {(topic, name) for topic, name in existing.groups if rights.allow(Right.CONSUME, topic, name)}
        self.pending = sum(existing.pending[topic] for topic in self.topics)
        self.at_s = at_s


class CountedAccount:
    """The use of one identity: see :class:`tarry.api.accounts.QuotaAccount`."""

    __slots__ = (
        *("_connections", "_count", "_creations", "_existing", "_inflight_bytes", "_lock", "_now_s", "_on_spent"),
        *("_rates", "_refused", "_rights", "is_bounded", "limits_consuming", "name", "quotas"),
    )

    def __init__(
        self,
        name: str,
        now_s: Callable[[], float],
        existing: Callable[[], Existing],
        on_spent: Callable[[str], None] | None,
    ) -> None:
        self.name, self._now_s, self._existing, self._on_spent = name, now_s, existing, on_spent
        self._lock = threading.Lock()
        self._rights = Rights(())
        self._rates = Rates(now_s)
        self._creations = TokenBucket(0, 0.0)
        self._count: Count | None = None
        self._connections = self._inflight_bytes = 0
        self._refused: Counter[str] = Counter()
        self.quotas = Quotas()
        self.is_bounded = self.limits_consuming = False

    def set(self, quotas: Quotas, rights: Rights) -> None:
        """Hold it against these quotas from now on, with the rights that it has now."""
        with self._lock:
            if rights.grants != self._rights.grants:
                self._rights, self._count = rights, None
            if quotas == self.quotas:
                return
            now_s = self._now_s()
            self._rates.set(quotas)
            self._creations = TokenBucket((quotas.creations_per_minute or 0) / CREATIONS_S, now_s, CREATIONS_S)
            self.quotas, self.is_bounded = quotas, quotas != Quotas()
            self.limits_consuming = not quotas.limits().keys().isdisjoint((*RECEIVING, FILTERING))

    # -- messages ------------------------------------------------------------------------------------------------------

    def wait_s(self, waited_s: float = 0.0) -> float:
        """See :meth:`tarry.api.accounts.QuotaAccount.wait_s`."""
        if not self.is_bounded:
            return 0.0
        with self._lock:
            return self._rates.delay_s(waited_s)

    def charge(self, messages: int, size: int, topics: Iterable[str]) -> None:
        """Count messages that are to be scheduled, ``size`` bytes in all, for these topics.

        Raises:
            QuotaExceededError: names the quota. Nothing was counted.
        """
        if not self.is_bounded:
            return
        with self._lock:
            self._check_rates()
            if self.quotas.pending is not None:
                self._check_pending(messages, self.quotas.pending)
            self._check_new("topics", self.quotas.topics, topics, lambda: self._counted().topics)
            if self._count is not None:
                self._count.pending += messages
            self._take(dict(zip(SENDING, (messages, size), strict=True)))

    def _check_rates(self) -> None:
        for name, debt_s in self._rates.debts():
            if debt_s > DELAY_S_MAX:
                self._refuse(name, self._used_up(name), debt_s)

    def _take(self, used: Mapping[str, float]) -> None:
        if self._rates.take(used) and self._on_spent is not None:
            self._on_spent(self.name)

    def _used_up(self, quota: str) -> str:
        return f"the quota {quota}={getattr(self.quotas, quota)} is used up"

    def _check_pending(self, messages: int, most: int) -> None:
        pending = self._counted().pending
        if pending + messages > most:
            self._refuse("pending", f"{messages} more beside {pending} pending messages; the quota is {most} (pending)")

    # -- consuming -----------------------------------------------------------------------------------------------------

    def held_back(self, *, filters: bool) -> HeldBack | None:
        """See :meth:`tarry.api.accounts.QuotaAccount.held_back`."""
        if not self.limits_consuming:
            return None
        with self._lock:
            return self._rates.held_back(filters=filters)

    def receivable(self, rows_max: int) -> int:
        """Return how many messages it may be handed at once now: 1 to ``rows_max``."""
        with self._lock:
            return self._rates.receivable(rows_max)

    def charge_received(self, messages: int, size: int) -> None:
        """Count messages that were handed out, ``size`` bytes in all."""
        with self._lock:
            self._take(dict(zip(RECEIVING, (messages, size), strict=True)))

    def charge_filter(self, cpu_s: float) -> None:
        """Count CPU time of conditions."""
        with self._lock:
            self._take({FILTERING: cpu_s * 1000})

    def refusal(self, held: HeldBack) -> QuotaExceededError:
        """Count a refusal, and return it."""
        with self._lock:
            return self._refusal(held.quota, self._used_up(held.quota), held.wait_s)

    # -- several processes ---------------------------------------------------------------------------------------------

    def charge_elsewhere(self, spent: Mapping[str, float]) -> dict[str, float]:
        """See :meth:`tarry.api.accounts.QuotaAccount.charge_elsewhere`."""
        with self._lock:
            self._rates.take(spent)
            return self._rates.left()

    def take_spent(self) -> dict[str, float]:
        """Return what the broker has to be told of, by quota; it is told then."""
        with self._lock:
            return self._rates.take_spent()

    def take_over(self, left: Mapping[str, float]) -> None:
        """Have as much left of each rate as the broker says, less what was spent since it was asked."""
        with self._lock:
            self._rates.take_over(left)

    # -- what is made, and held ----------------------------------------------------------------------------------------

    def check_group(self, topic: str, name: str) -> None:
        """Count a group that is asked for, if it is new.

        Raises:
            QuotaExceededError: it would be one too many.
        """
        if not self.is_bounded:
            return
        with self._lock:
            self._check_new("groups", self.quotas.groups, ((topic, name),), lambda: self._counted().groups)

    def _check_new(
        self, quota: str, most: int | None, asked: Iterable[object], known: Callable[[], builtins.set[Any]]
    ) -> None:
        creations = self.quotas.creations_per_minute
        if most is None and creations is None:
            return
        there = known()
        new = {each for each in asked if each not in there}
        if not new:
            return
        if most is not None and len(there) + len(new) > most:
            self._refuse(quota, f"{len(new)} new beside {len(there)} {quota}; the quota is {most} ({quota})")
        if creations is not None:
            left = self._creations.available(self._now_s())
            if left is not None and left < len(new):
                wait_s = (len(new) - left) * CREATIONS_S / creations
                text = f"{len(new)} new {quota}; of the quota creations_per_minute={creations}, {left} are left"
                self._refuse("creations_per_minute", text, wait_s)
            self._creations.take(len(new))
        there |= new

    def begin_connection(self) -> None:
        """Count a connection.

        Raises:
            QuotaExceededError: it is one too many.
        """
        with self._lock:
            most = self.quotas.connections
            if most is not None and self._connections >= most:
                self._refuse(
                    "connections", f"one more beside {self._connections} connections; the quota is {most} (connections)"
                )
            self._connections += 1

    def end_connection(self) -> None:
        """Count a connection no more."""
        with self._lock:
            self._connections -= 1

    def begin_batch(self, size: int, share: int) -> None:
        """Count the bytes of a batch on its way to the disk, of which one identity may have ``share``.

        Raises:
            QuotaExceededError: others of its batches have taken up the share. One alone may be larger.
        """
        with self._lock:
            most = min(share, self.quotas.inflight_bytes or share)
            if self._inflight_bytes and self._inflight_bytes + size > most:
                text = f"{size} bytes more beside {self._inflight_bytes} on their way to the disk; allowed: {most}"
                self._refuse("inflight_bytes", f"{text} (inflight_bytes)")
            self._inflight_bytes += size

    def end_batch(self, size: int) -> None:
        """Count them no more."""
        with self._lock:
            self._inflight_bytes -= size

    def use(self) -> QuotaUse:
        """Return what is used."""
        with self._lock:
            used = {"connections": self._connections, "inflight_bytes": self._inflight_bytes, **self._rates.used()}
            if self.is_bounded:
                count = self._counted()
                used |= {"pending": count.pending, "topics": len(count.topics), "groups": len(count.groups)}
            delayed_ms = round(self._rates.delayed_s * 1000)
            return QuotaUse(self.name, self.quotas.limits(), used, dict(self._refused), delayed_ms)

    def _counted(self) -> Count:
        now_s = self._now_s()
        if self._count is None or not 0 <= now_s - self._count.at_s < COUNT_S:
            self._count = Count(self._rights, self._existing(), now_s)
        return self._count

    def _refuse(self, quota: str, text: str, wait_s: float = 1.0) -> NoReturn:
        raise self._refusal(quota, text, wait_s)

    def _refusal(self, quota: str, text: str, wait_s: float) -> QuotaExceededError:
        self._refused[quota] += 1
        return QuotaExceededError(f"{self.name}: {text}; try again in {max(0.1, wait_s):.1f} s")


class AccountBook:
    """The accounts of all identities of one process. Any thread."""

    def __init__(self, clock: Clock, on_spent: Callable[[str], None] | None = None) -> None:
        """``on_spent`` gets a name when the broker, in another process, is to be told what was spent."""
        self._clock, self._on_spent = clock, on_spent
        self.count_existing: Callable[[], Existing] = lambda: NOTHING_THERE
        """Counts what is there. It is set by whoever makes the broker: identities are there first."""
        self._lock = threading.Lock()
        self._by_name: dict[str, CountedAccount] = {}
        self._existing: tuple[float, Existing] | None = None

    def of(self, name: str) -> CountedAccount:
        """Return the account of an identity."""
        with self._lock:
            account = self._by_name.get(name)
            if account is None:
                account = self._by_name[name] = CountedAccount(name, self._now_s, self._all_existing, self._on_spent)
            return account

    def update(self, identities: Iterable[Identity]) -> None:
        """Hold these identities against their quotas, and forget all others.

        Whoever changes identities calls this first, one change after the other: those who look an account up may have
        seen an older state.
        """
        by_name = {identity.name: identity for identity in identities}
        with self._lock:
            self._by_name = {name: account for name, account in self._by_name.items() if name in by_name}
            bounded = {name for name, account in self._by_name.items() if account.is_bounded}
        for name, identity in by_name.items():
            if identity.quotas or name in bounded:
                self.of(name).set(Quotas.of(identity.quotas), Rights.of(identity.grants))

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000

    def _all_existing(self) -> Existing:
        # Counted once for all that ask within a second. Two threads that count at once do no harm.
        now_s, found = self._now_s(), self._existing
        if found is None or not 0 <= now_s - found[0] < COUNT_S:
            found = self._existing = now_s, self.count_existing()
        return found[1]
