"""Receives whose identity has used up a quota: how long they wait, and when they are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from tarry.api.accounts import QuotaAccount
from tarry.api.consuming import ConsumerGroup, Subscription
from tarry.api.quotas import DELAY_S_MAX
from tarry.message.filter import is_condition


def rest_s(subscription: Subscription, waited_s: float) -> float:
    """Return for how many seconds a receive waits on that has got nothing: for the rest of a second.

    0 if it was not for a quota.
    """
    return 0.0 if subscription.held_back is None else max(0.0, DELAY_S_MAX - waited_s)


async def wait_or_rest(ends: Collection[asyncio.Future[Any]], subscription: Subscription, wait_s: float) -> None:
    """Wait until one of ``ends`` is done, up to ``wait_s`` seconds.

    A receive that is held back then waits for a second at least.
    """
    done, _ = await asyncio.wait(ends, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    if not done and (left_s := rest_s(subscription, wait_s)):
        await asyncio.wait(ends, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)


def check_held_back(subscription: Subscription, wait_s: float) -> None:
    """Refuse a receive that got nothing for a quota, unless it waits for longer than a request is delayed.

    An answer without messages would say that there are none.

    Raises:
        QuotaExceededError: a quota of its identity is used up.
    """
    held = None if wait_s >= DELAY_S_MAX else subscription.held_back
    if held is not None and subscription.account is not None:
        raise subscription.account.refusal(held)


async def receivable_in_turn(
    loop: asyncio.AbstractEventLoop, group: ConsumerGroup, account: QuotaAccount, rows_max: int, wait_s: float
) -> int:
    """Wait for the quotas of a reader by offsets, up to ``wait_s`` seconds, a second at least.

    Returns how many messages it may be handed at once.

    Raises:
        QuotaExceededError: a quota was used up for so long.
    """
    end_s = loop.time() + max(wait_s, DELAY_S_MAX)
    filters = is_condition(group.settings.filter)
    while (held := account.held_back(filters=filters)) is not None:
        left_s = end_s - loop.time()
        if left_s <= 0:
            raise account.refusal(held)
        await asyncio.sleep(min(held.wait_s, left_s, DELAY_S_MAX))
    return account.receivable(rows_max)
