"""Operations on leased messages by the link: settle, give back, extend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tarry.api.bounds import LEASE_MS, YEAR_MS, Range
from tarry.base.errors import InvalidArgumentError
from tarry.fronts.link.flow import Flow
from tarry.fronts.link.groups import GroupTable
from tarry.fronts.link.outgoing import Outgoing
from tarry.link.frames import FrameKind, SettleFrame, SettleOp, encode_int, encode_mask

_BOUNDS = {SettleOp.NACK: Range(-1), SettleOp.EXTEND: LEASE_MS, SettleOp.CHANGE: Range(0, YEAR_MS)}
"""Allowed arguments, in milliseconds."""


class Settlements:
    """Handles SETTLE frames. On the loop's thread."""

    def __init__(self, groups: GroupTable, out: Outgoing, flow: Flow | None = None) -> None:
        """Settle for one connection; ``flow`` counts what is under way, None: the other side is trusted."""
        self._groups, self._out, self._flow = groups, out, flow

    def settle(self, number: int, payload: memoryview) -> None:
        """Handle a SETTLE frame."""
        settle = SettleFrame.decode(payload)
        group = self._groups.find(settle.group).group
        if settle.op in _BOUNDS:
            _BOUNDS[settle.op].check(f"argument of {settle.op.name.lower()}", settle.argument)
        on_result = self._answer(number, len(payload), _nothing) if number else None
        leases, offsets, argument = settle.leases, settle.offsets, settle.argument
        match settle.op:
            case SettleOp.ACK_EACH:
                group.ack_each(leases, offsets, self._answer(number, len(payload), _each))
            case SettleOp.ACK:
                group.ack(leases, offsets, on_result)
            case SettleOp.NACK:
                group.nack(leases, offsets, None if argument < 0 else argument, on_result, settle.reason)
            case SettleOp.REJECT:
                group.reject(leases, offsets, on_result)
            case SettleOp.EXTEND:
                group.extend(leases, offsets, argument)
            case SettleOp.CHANGE:
                if len(leases) != 1:
                    raise InvalidArgumentError(f"{len(leases)} leases to be changed; allowed: one")
                on_lease = self._answer(number, len(payload), _lease)
                group.change_lease(int(leases[0]), int(offsets[0]), argument, on_lease)

    def _answer(self, number: int, size: int, encode: Callable[[Any], list[Any]]) -> Callable[[Any], None]:
        flow = self._flow
        if flow is None:
            return self._out.answer(FrameKind.SETTLED, number, encode)
        flow.begin(size)
        return self._out.answer(FrameKind.SETTLED, number, encode, lambda: flow.end(size))


def _nothing(_: None) -> list[Any]:
    return []


def _each(held: Any) -> list[Any]:
    return [encode_mask(held)]


def _lease(lease: int | None) -> list[Any]:
    return [] if lease is None else [encode_int(lease)]
