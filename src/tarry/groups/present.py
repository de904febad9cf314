"""The consumers of a group that are there, and what each holds. For people: nothing is decided by it."""

from __future__ import annotations

from itertools import count
from weakref import WeakKeyDictionary

from tarry.api.group_info import ConsumerInfo
from tarry.groups.leases import Holder, Lease, Leases


class PresentConsumers:
    """The consumers of one group; guarded by its lock.

    A receive by a call of its own is never closed, for its leases outlive it. So a consumer is forgotten when neither
    its caller nor a lease has it any more.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._began: WeakKeyDictionary[Holder, tuple[int, int]] = WeakKeyDictionary()

    def add(self, holder: Holder, now_ms: int) -> None:
        """Note a consumer that has come."""
        self._began[holder] = (next(self._numbers), now_ms)

    def infos(self, leases: Leases, limit: int) -> list[ConsumerInfo]:
        """Return what is known of them; those that hold most first, then those that have been there longest."""
        held: dict[Holder, list[Lease]] = {}
        for lease in leases:
            held.setdefault(lease.holder, []).append(lease)
        known = [(holder, *began) for holder, began in list(self._began.items())]
        there = [each for each in known if not each[0].closed or each[0].held]
        there.sort(key=lambda each: (-each[0].held, each[1]))
        return [_info(*each, held.get(each[0], [])) for each in there[:limit]]


def _info(holder: Holder, number: int, began_ms: int, leases: list[Lease]) -> ConsumerInfo:
    return ConsumerInfo(
        number=number,
        identity=None if holder.account is None else holder.account.name,
        began_ms=began_ms,
        state=_state(holder),
        prefetch=holder.prefetch,
        held=holder.held,
        oldest_lease_ms=min((lease.since_ms for lease in leases), default=None),
        lease_end_ms=min((lease.deadline_ms for lease in leases), default=None),
        attempt_max=max((int(lease.attempts[lease.held].max()) for lease in leases if len(lease.held)), default=0),
    )


def _state(holder: Holder) -> str:
    if holder.silent:
        return "silent"
    if not holder.held:
        return "idle"
    return "full" if holder.held >= holder.prefetch else "holding"
