"""The places of one broker: addresses of which its owner has one open, tried in turn.

A broker whose log is in an object store may be taken over by another machine. Only the owner has its ports open, so who
has all addresses finds it by connecting: the address that worked last comes first, each try has a bound, and all tries
of one turn together have :data:`FIND_S`. One address is the same with a list of one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tarry.base.endpoint import split_addresses
from tarry.base.errors import TarryError, UnavailableError
from tarry.link.address import BrokerAddress
from tarry.link.credentials import AdminTokenNotice
from tarry.link.tls import ClientTls

FIND_S = 5.0
"""Seconds for one turn of tries; and for which a call waits, where there are several addresses."""
PAUSE_S, PAUSE_S_MAX = 0.05, 0.2
"""Between two turns: the first pause, doubled up to the second."""


class NoAnswerError(Exception):
    """A try that may be followed by one of the next address; its text is the reason, without the address."""


class BrokerPlaces:
    """The addresses of one broker. Any thread.

    All connections of a client share one, so each begins with the address that worked last for any of them.
    """

    def __init__(self, every: Iterable[BrokerAddress]) -> None:
        """``every``: at least one."""
        self.every = tuple(every)
        self.text = ",".join(each.text for each in self.every)
        """All addresses, without the names of files."""
        self.is_several = len(self.every) > 1
        self.try_s = FIND_S / len(self.every)
        """Seconds that a try may take, up to the greeting."""
        self._lock = threading.Lock()
        self._last = self.every[0]
        self._epoch: int | None = None
        """The highest that a broker at one of them has said."""

    @classmethod
    def of(
        cls,
        addresses: str | BrokerAddress | BrokerPlaces,
        tls: ClientTls | None = None,
        token: str | None = None,
        notice: AdminTokenNotice | None = None,
    ) -> BrokerPlaces:
        """Parse a list of addresses, ``A,B``, each as :meth:`tarry.link.address.BrokerAddress.of` takes it.

        One that comes twice counts once. ``notice`` is of a program's, see :class:`BrokerAddress`.

        Raises:
            InvalidArgumentError: one is none. It is named.
        """
        if isinstance(addresses, BrokerPlaces):
            return addresses
        if isinstance(addresses, BrokerAddress):
            return cls([addresses])
        split = split_addresses(addresses)
        if len(split) == 1:
            return cls([replace(BrokerAddress.of(split[0], tls, token), notice=notice)])
        parsed = dict.fromkeys(BrokerAddress.of(each, tls, token) for each in split)
        text = ",".join(each.text for each in parsed)
        return cls(replace(each, listed=text, notice=notice) for each in parsed)

    def check(self) -> None:
        """Refuse files of TLS that are not what they should be.

        Raises:
            InvalidArgumentError: names the file.
        """
        for each in self.every:
            each.check()

    def resume(self, last: str, epoch: int | None) -> None:
        """Go on from what another process has found: the address that worked last there, and its epoch."""
        with self._lock:
            self._last = next((each for each in self.every if each.text == last), self._last)
            self._epoch = epoch

    def in_turn(self) -> tuple[BrokerAddress, ...]:
        """Return the addresses, first the one that worked last, then those behind it."""
        with self._lock:
            at = self.every.index(self._last)
        return self.every[at:] + self.every[:at]

    def on_greeted(self, where: BrokerAddress, welcome: Mapping[str, Any]) -> int | None:
        """Note that a broker at an address serves; return its epoch, None if nobody can take it over.

        Raises:
            NoAnswerError: a later owner has been seen. What this one hands out may be another's by now.
        """
        said = welcome.get("epoch")
        epoch = said if isinstance(said, int) else None
        with self._lock:
            if self._is_former(epoch):
                raise NoAnswerError(f"an owner of before: its epoch is {epoch}, and {self._epoch} was seen")
            if epoch is not None:
                self._epoch = epoch
            self._last = where
        return epoch

    def pass_over(self, where: BrokerAddress) -> None:
        """Try an address last: the broker there has lost its logs, and may greet for a moment still."""
        with self._lock:
            if self._last == where:
                self._last = self.every[(self.every.index(where) + 1) % len(self.every)]

    def is_former(self, epoch: int | None) -> bool:
        """Return whether a later owner than that of this epoch has been seen since."""
        with self._lock:
            return self._is_former(epoch)

    def _is_former(self, epoch: int | None) -> bool:
        return epoch is not None and self._epoch is not None and epoch < self._epoch

    def no_answer(self, whys: Mapping[BrokerAddress, str]) -> UnavailableError:
        """Return the error that none of them answers; ``whys`` has the reasons, as far as known."""
        if not self.is_several:
            return unreachable(self.every[0], next(iter(whys.values()), "no answer yet"))
        each = (f"{where.text}: {whys.get(where, 'no answer yet')}" for where in self.every)
        return UnavailableError(f"no answer from a broker at {'; '.join(each)}", nothing_sent=True)


def unreachable(where: BrokerAddress, why: str) -> UnavailableError:
    """Return the error that there is no broker at one address."""
    return UnavailableError(f"no answer from the broker at {where.text}: {why}", nothing_sent=True)


def goes_on(error: TarryError) -> bool:
    """Return whether the broker that refuses a greeting does not serve, so that another one may.

    What is wrong with this side, as a bad token, will be so there, too.
    """
    return error.retryable
