"""The use that identities make of a broker, as fronts and authenticators ask for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from tarry.api.quotas import Quotas, QuotaUse
from tarry.base.errors import QuotaExceededError
from tarry.base.types import Mask


class HeldBack(NamedTuple):
    """A quota that is used up, for which a consumer is handed nothing."""

    quota: str
    wait_s: float
    """Seconds until something is left of it."""


class QuotaAccount(Protocol):
    """The use of one identity, held against its quotas. Any thread."""

    @property
    def name(self) -> str:
        """Name of the identity."""
        ...

    @property
    def is_bounded(self) -> bool:
        """True if it has a quota; without one, nothing has to be asked or counted but connections and batches."""
        ...

    @property
    def quotas(self) -> Quotas: ...

    def wait_s(self, waited_s: float = 0.0) -> float:
        """Return the seconds by which a request with messages is to be delayed, one at most.

        ``waited_s``: it has waited for so long, and asks if it would be refused now; one at most in all.
        They are counted as waited for.
        """
        ...

    def charge(self, messages: int, size: int, topics: Iterable[str]) -> None:
        """Count messages that are to be scheduled, ``size`` bytes in all, for these topics.

        Raises:
            QuotaExceededError: names the quota. Nothing was counted.
        """
        ...

    @property
    def limits_consuming(self) -> bool:
        """True if a quota is on what it receives or filters; else none of the next four has to be called."""
        ...

    def held_back(self, *, filters: bool) -> HeldBack | None:
        """Return the quota for which it is handed nothing now; None: there is none.

        ``filters``: conditions choose its messages. The time until then counts as one by which it was delayed.
        """
        ...

    def receivable(self, rows_max: int) -> int:
        """Return how many messages it may be handed at once now: 1 to ``rows_max``."""
        ...

    def charge_received(self, messages: int, size: int) -> None:
        """Count messages that were handed out, ``size`` bytes in all. What is too much is owed."""
        ...

    def charge_filter(self, cpu_s: float) -> None:
        """Count CPU time of conditions. What is too much is owed."""
        ...

    def refusal(self, held: HeldBack) -> QuotaExceededError:
        """Count a refusal, and return it: it names the identity, the quota and its limit."""
        ...

    def check_group(self, topic: str, name: str) -> None:
        """Count a group that is asked for, if it is new.

        Raises:
            QuotaExceededError: it would be one too many.
        """
        ...

    def begin_connection(self) -> None:
        """Count a connection.

        Raises:
            QuotaExceededError: it is one too many.
        """
        ...

    def end_connection(self) -> None:
        """Count a connection no more."""
        ...

    def begin_batch(self, size: int, share: int) -> None:
        """Count the bytes of a batch on its way to the disk, of which one identity may have ``share``.

        Raises:
            QuotaExceededError: others of its batches have taken up the share. One alone may be larger.
        """
        ...

    def end_batch(self, size: int) -> None:
        """Count them no more."""
        ...

    def charge_elsewhere(self, spent: Mapping[str, float]) -> dict[str, float]:
        """Count what another process has let pass, by quota; return the rest of each rate."""
        ...

    def use(self) -> QuotaUse:
        """Return what is used."""
        ...


def charge_handed(account: QuotaAccount | None, messages: int, size: int) -> None:
    """Count messages that a consumer is handed, ``size`` bytes in all, where a quota is on that."""
    if account is not None and account.limits_consuming:
        account.charge_received(messages, size)


def charge_filtering(account: QuotaAccount | None, evaluate: Callable[[], Mask]) -> Mask:
    """Evaluate a condition, in CPU time of this thread that the account pays for, whatever comes of it."""
    if account is None or not account.limits_consuming:
        return evaluate()
    began_s = time.thread_time()
    try:
        return evaluate()
    finally:
        account.charge_filter(time.thread_time() - began_s)


class QuotaAccounts(Protocol):
    """The accounts of all identities of one process. Any thread."""

    def of(self, name: str) -> QuotaAccount:
        """Return the account of an identity."""
        ...
