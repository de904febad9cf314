"""The use that identities make of a broker, as fronts and authenticators ask for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tarry.api.quotas import Quotas, QuotaUse


class QuotaAccount(Protocol):
    """The use of one identity, held against its quotas. Any thread."""

    @property
    def is_bounded(self) -> bool:
        """True if it has a quota; without one, nothing has to be asked or counted but connections and batches."""
        ...

    @property
    def quotas(self) -> Quotas: ...

    def wait_s(self) -> float:
        """Return the seconds by which a request with messages is to be delayed, one at most.

        They are counted as waited for.
        """
        ...

    def charge(self, messages: int, size: int, topics: Iterable[str]) -> None:
        """Count messages that are to be scheduled, ``size`` bytes in all, for these topics.

        Raises:
            QuotaExceededError: names the quota. Nothing was counted.
        """
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

    def charge_elsewhere(self, messages: int, size: int) -> dict[str, float]:
        """Count messages that another process has let pass; return the rest of each rate, by quota."""
        ...

    def use(self) -> QuotaUse:
        """Return what is used."""
        ...


class QuotaAccounts(Protocol):
    """The accounts of all identities of one process. Any thread."""

    def of(self, name: str) -> QuotaAccount:
        """Return the account of an identity."""
        ...
