"""The last look at the lease: right before messages that were handed out go to a socket.

Where machines share the logs, a group looks at its broker's lease under its lock. Between that and the socket messages
are encoded, wait for a thread, for a connection, or in a buffer for a receiver that rests. The lease may end meanwhile,
and the next owner hands out the same. So each front looks again when it writes: once for what it writes at a time, not
for each message. A broker whose logs nobody can take over has no lease, so there a look is one attribute.

What may not be sent is ready again at once, as the same try: whoever owns the logs then hands it out. Its consumer is
told what it is told when there is nothing.

What is left: a thread that stands still between this look and ``send``, and what waits unread in a socket's buffers.
"""

from __future__ import annotations

from tarry.api.consuming import ConsumerGroup
from tarry.fronts.kit.receiving import Received, leases_of, rows_of


def holds_back(group: ConsumerGroup, received: Received) -> bool:
    """Return whether messages that a group has leased may not be sent; they are given back then."""
    if group.may_send:
        return False
    rows = rows_of(received)
    if rows is not None:
        group.give_back(*leases_of(rows))
    return True


def sendable(group: ConsumerGroup, received: Received) -> Received:
    """Return what may be sent of what was received: all, or None where it is held back."""
    return None if rows_of(received) is not None and holds_back(group, received) else received
