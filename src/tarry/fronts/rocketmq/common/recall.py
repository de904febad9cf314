"""Recalling by a handle, which is no right by itself."""

from __future__ import annotations

from tarry.api.local import AnyBroker
from tarry.api.needs import Right
from tarry.api.operations import Cancel
from tarry.api.outcome import Outcome
from tarry.identity.principal import Principal


def cancel_in(broker: AnyBroker, principal: Principal, topic: str, handle: str) -> list[Outcome]:
    """Cancel a message of a topic by its handle, durably. In a thread.

    The caller has checked that ``principal`` may produce to ``topic``, which the client names. A message of another
    topic, to which it may not produce, is as unknown as none.
    """
    if principal.rights.is_unlimited:
        return broker.call(Cancel([handle]))

    def check(found: str | None, group: str | None = None, /) -> None:
        # None: by a worker, where the topic of what is found is not known. That takes the right on all topics.
        if found != topic:
            principal.check(Right.PRODUCE, found)

    return broker.call_found(Cancel([handle]), check)
