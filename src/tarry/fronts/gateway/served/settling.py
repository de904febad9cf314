"""A gateway's operations on leased messages: settle, give back, extend."""

from __future__ import annotations

from typing import Any

from tarry.fronts.gateway.frames import FrameKind, SettleFrame, SettleOp, encode_int, encode_mask
from tarry.fronts.gateway.served.groups import GroupTable
from tarry.fronts.gateway.served.outgoing import Outgoing


class Settlements:
    """Handles SETTLE frames. On the loop's thread."""

    def __init__(self, groups: GroupTable, out: Outgoing) -> None:
        self._groups, self._out = groups, out

    def settle(self, number: int, payload: memoryview) -> None:
        """Handle a SETTLE frame."""
        settle = SettleFrame.decode(payload)
        group = self._groups.find(settle.group).group
        on_result = self._out.answer(FrameKind.SETTLED, number, _nothing) if number else None
        leases, offsets, argument = settle.leases, settle.offsets, settle.argument
        match settle.op:
            case SettleOp.ACK_EACH:
                group.ack_each(leases, offsets, self._out.answer(FrameKind.SETTLED, number, _each))
            case SettleOp.ACK:
                group.ack(leases, offsets, on_result)
            case SettleOp.NACK:
                group.nack(leases, offsets, None if argument < 0 else argument, on_result, settle.reason)
            case SettleOp.REJECT:
                group.reject(leases, offsets, on_result)
            case SettleOp.EXTEND:
                group.extend(leases, offsets, argument)
            case SettleOp.CHANGE:
                on_lease = self._out.answer(FrameKind.SETTLED, number, _lease)
                group.change_lease(int(leases[0]), int(offsets[0]), argument, on_lease)


def _nothing(_: None) -> list[Any]:
    return []


def _each(held: Any) -> list[Any]:
    return [encode_mask(held)]


def _lease(lease: int | None) -> list[Any]:
    return [] if lease is None else [encode_int(lease)]
