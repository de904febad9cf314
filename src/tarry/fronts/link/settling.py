"""Operations on leased messages by the link: settle, give back, extend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tarry.api.bounds import LEASE_MS, YEAR_MS, Range
from tarry.api.consuming import ConsumerGroup
from tarry.base.errors import InvalidArgumentError
from tarry.base.types import Int64s
from tarry.fronts.link.flow import Flow
from tarry.fronts.link.groups import GroupTable, ServedGroup
from tarry.fronts.link.outgoing import Outgoing
from tarry.link.frames import LEASES_MAX, FrameKind, SettleFrame, SettleOp, encode_int, encode_mask

_BOUNDS = {SettleOp.NACK: Range(-1), SettleOp.EXTEND: LEASE_MS, SettleOp.CHANGE: Range(0, YEAR_MS)}
"""Allowed arguments, in milliseconds."""


class Settlements:
    """Handles SETTLE frames. On the loop's thread."""

    def __init__(
        self,
        groups: GroupTable,
        out: Outgoing,
        flow: Flow | None = None,
        check: Callable[[ServedGroup], None] | None = None,
    ) -> None:
        """Settle for one connection.

        ``flow`` counts what is under way, and ``check`` refuses groups; None of them: the other side is trusted.
        """
        self._groups, self._out, self._flow, self._check = groups, out, flow, check

    def settle(self, number: int, payload: memoryview) -> None:
        """Handle a SETTLE frame."""
        settle = SettleFrame.decode(payload)
        if self._flow is not None:
            check_leases(settle.leases)
        served = self._groups.find(settle.group)
        if self._check is not None:
            self._check(served)
        group = served.group
        if settle.op in _BOUNDS:
            _BOUNDS[settle.op].check(f"argument of {settle.op.name.lower()}", settle.argument)
        if settle.op is SettleOp.CHANGE and len(settle.leases) != 1:
            raise InvalidArgumentError(f"{len(settle.leases)} leases to be changed; allowed: one")
        if settle.op is SettleOp.EXTEND:  # it is not answered
            group.extend(settle.leases, settle.offsets, settle.argument)
            return
        if settle.op is SettleOp.GIVE_BACK:  # neither is this
            group.give_back(settle.leases, settle.offsets)
            return
        end = None if self._flow is None else self._flow.begin(len(payload))
        try:
            self._carry_out(settle, group, number, end)
        except BaseException:
            if end is not None:
                end()
            raise

    def _carry_out(
        self, settle: SettleFrame, group: ConsumerGroup, number: int, end: Callable[[], None] | None
    ) -> None:
        out, leases, offsets, argument = self._out, settle.leases, settle.offsets, settle.argument
        # Without a number nobody waits for an answer, but it is under way all the same.
        encode = _ENCODED.get(settle.op, _nothing)
        on_result = out.answer(FrameKind.SETTLED, number, encode, end) if number else out.when_done(end)
        on_durable = on_result if number or end is not None else None
        match settle.op:
            case SettleOp.ACK_EACH:
                group.ack_each(leases, offsets, on_result)
            case SettleOp.ACK:
                group.ack(leases, offsets, on_durable)
            case SettleOp.NACK:
                group.nack(leases, offsets, None if argument < 0 else argument, on_durable, settle.reason)
            case SettleOp.REJECT:
                group.reject(leases, offsets, on_durable, settle.reason)
            case SettleOp.CHANGE:
                group.change_lease(int(leases[0]), int(offsets[0]), argument, on_result)


def check_leases(leases: Int64s) -> None:
    """Refuse more leases than a client may name at once: the loop, for which others wait, has the work.

    Raises:
        InvalidArgumentError: there are too many.
    """
    if len(leases) > LEASES_MAX:
        raise InvalidArgumentError(f"{len(leases)} leases; allowed: {LEASES_MAX} in one frame")


def _nothing(_: None) -> list[Any]:
    return []


def _each(held: Any) -> list[Any]:
    return [encode_mask(held)]


def _lease(lease: int | None) -> list[Any]:
    return [] if lease is None else [encode_int(lease)]


_ENCODED = {SettleOp.ACK_EACH: _each, SettleOp.CHANGE: _lease}
