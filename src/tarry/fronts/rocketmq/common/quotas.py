"""Messages of one caller, held against its quotas before they are gathered with those of others."""

from __future__ import annotations

from collections.abc import Sequence

from tarry.fronts.rocketmq.common.draft import Draft
from tarry.identity.principal import Principal


async def in_turn(principal: Principal, drafts: Sequence[Draft]) -> None:
    """Wait as long as a caller's rates have it wait, then count its messages.

    Raises:
        QuotaExceededError: they are too many.
    """
    await principal.in_turn()
    principal.charge(len(drafts), sum(len(draft.body) for draft in drafts), {draft.topic for draft in drafts})
